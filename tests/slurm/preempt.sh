#!/usr/bin/env bash
# A job that jobs of another partition preempt: saved, requeued, and continued when they are over, to the losses of an
# uninterrupted job, bit for bit; from a partition without GraceTime (SIGTERM to script and tasks) and with it (to the
# tasks alone, and the script asks for the requeue).
source "$(dirname "$0")/lib.sh"
need_cluster
up --nodes 2 --conf PreemptType=preempt/partition_prio --conf PreemptMode=REQUEUE \
  --conf $'PartitionName=spot Nodes=ALL GraceTime=120\nPartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF'
make_data
two_by_two=(--nodes=2 --ntasks-per-node=2)
steps=200
new_run straight "train_iters: $steps" "checkpoint_factor: 100"
job=$(train_job straight "${two_by_two[@]}")
wait_for "$job" 240 COMPLETED

for partition in batch spot; do
  new_run "$partition" "train_iters: $steps" "checkpoint_factor: 10000"
  job=$(train_job "$partition" "${two_by_two[@]}" --partition="$partition")
  wait_until 180 "a step" at_step "$partition" 20
  urgent=$(submit --partition=urgent --nodes=2 --exclusive --output=/dev/null --wrap='sleep 3')
  wait_for "$urgent" 120 COMPLETED
  wait_for "$job" 240 COMPLETED
  [[ $(field "$job" Restarts) == 1 ]] || fail "restarts: $(field "$job" Restarts)"
  expect "$fsx/$partition/job.out" 'asked to by SIGTERM' 'resuming from .*global_step'
  same_losses straight "$partition" "$steps" bits
done
expect "$fsx/spot/job.out" 'asks Slurm for a restart|Slurm itself starts it again'
