#!/usr/bin/env bash
# kill -9 of one rank: the others end within 15 s with exit code 76 and name it (Open MPI 4); the requeued job goes on from its
# checkpoint, and its losses are those of an uninterrupted job, bit for bit.
source "$(dirname "$0")/lib.sh"
need_cluster
up --nodes 2
make_data
new_run straight "${short[@]}"
new_run killed "${short[@]}"
two_by_two=(--nodes=2 --ntasks-per-node=2)

job=$(train_job straight "${two_by_two[@]}")
wait_for "$job" 240 COMPLETED

job=$(train_job killed "${two_by_two[@]}")
wait_until 180 "a checkpoint" saved killed 40
victim=$(tasks "$job" neox-train 2)
[[ $victim =~ ^[0-9]+$ ]] || fail "processes of rank 2: '$victim'"
since=$EPOCHREALTIME
kill -KILL "$victim"
wait_until 15 "all ranks to end after one was killed" no_tasks "$job" neox-train
say "all ranks have ended within $(elapsed "$since") s"
case $(mpirun --version) in
  *"MPI) 4."*) expect "$fsx/killed/job.out" 'rank 2 on node2' 'Exited with exit code 76' ;;
  # Open MPI 5 ends the ranks when it has lost one, before they can say which; srun says it.
  *) expect "$fsx/killed/job.out" 'error: node2: tasks? 2' ;;
esac

wait_for "$job" 240 COMPLETED
[[ $(field "$job" Restarts) == 1 ]] || fail "restarts: $(field "$job" Restarts)"
expect "$fsx/killed/job.out" 'a task was lost, or killed .*asks Slurm for restart 1' 'resuming from .*global_step'
same_losses straight killed "$steps" bits
