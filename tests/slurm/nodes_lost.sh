#!/usr/bin/env bash
# A job of --nodes=2-4 loses two of its four nodes: the one with the job script dies, and another only loses its
# network and its slurmd, so that its task lives on. The job goes on with two nodes, and the orphan, which slept
# meanwhile, ends without touching the checkpoints of the new life.
source "$(dirname "$0")/lib.sh"
need_cluster
up --nodes 4
make_data
new_run alone "${long[@]}"
new_run elastic "${long[@]}"
train_alone alone

job=$(train_job elastic --nodes=2-4 --ntasks-per-node=1)
wait_until 60 "a checkpoint" saved elastic 20
orphan=$(tasks "$job" neox-train 3)
[[ $orphan =~ ^[0-9]+$ ]] || fail "processes of rank 3: '$orphan'"
kill -STOP "$orphan"
kill -KILL "$(slurmd_of node4)"
login ip link set port4 down
"$here/slurm_cluster" kill-node node1
say "node1 is dead, node4 cut off with a stopped task"

wait_until 60 "the restart" restarted "$job"
wait_until 60 "a step of the new life" grep -q 'resuming from' "$fsx/elastic/job.out"
login ip link set port4 up
kill -CONT "$orphan"
wait_until 15 "the end of the orphan" gone "$orphan"
say "the orphan has ended"
wait_for "$job" 120 COMPLETED
[[ $(field "$job" NumNodes) == 2 ]] || fail "the job ended on $(field "$job" NumNodes) nodes"
same_losses alone elastic "$long_steps" 1e-5
if ls -d "$fsx"/elastic/save/*.tmp-* 2> /dev/null; then fail "unfinished checkpoints are left"; fi
