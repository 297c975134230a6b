#!/usr/bin/env bash
# The warning before a time limit: saved, exit code 75, requeued, resumed to the end; the losses are those of an
# uninterrupted job, bit for bit, and the log has all parts. So where one rank alone gets the signal. With --full the
# limit is a real one, of two minutes.
source "$(dirname "$0")/lib.sh"
need_cluster
up --nodes 2
make_data
two_by_two=(--nodes=2 --ntasks-per-node=2)
steps=400  # of which a machine has some left when the signal, which srun cannot take in its first two seconds, arrives
new_run straight "train_iters: $steps" "checkpoint_factor: 100"
new_run warned "train_iters: $steps" "checkpoint_factor: 10000"

job=$(train_job straight "${two_by_two[@]}")
wait_for "$job" 240 COMPLETED

job=$(train_job warned "${two_by_two[@]}")
wait_until 180 "a step" at_step warned 20
login scancel --signal=USR1 --batch "$job"
wait_until 60 "the requeue" requeued "$job" 1
expect "$fsx/warned/job.out" 'asked to by SIGUSR1' 'Exited with exit code 75'
before=$(losses warned | wc -l)
wait_until 180 "a step of the second start" at_step warned $((before + 5))
kill -USR1 "$(tasks "$job" neox-train 2)"  # all stop, and rank 0 says whose signal it was
wait_until 60 "the second requeue" requeued "$job" 2
wait_for "$job" 240 COMPLETED
[[ $(field "$job" Restarts) == 2 ]] || fail "restarts: $(field "$job" Restarts)"
expect "$fsx/warned/job.out" 'asked to by SIGUSR1' 'resuming from .*global_step' ': rank 2: asked to by SIGUSR1'
same_losses straight warned "$steps" bits

if [[ $full == --full ]]; then
  new_run limited "train_iters: 1500" "checkpoint_factor: 50"
  job=$(train_job limited "${two_by_two[@]}" --time=2 --signal=B:USR1@80)
  wait_for "$job" 400 COMPLETED
  expect "$fsx/limited/job.out" 'SIGUSR1' 'resuming from .*global_step'
  [[ $(losses limited | wc -l) == 1500 ]] || fail "$(losses limited | wc -l) steps of 1500"
fi
