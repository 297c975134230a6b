#!/usr/bin/env bash
# A job of --nodes=2-4 loses two of its four nodes: the one with the job script dies, and another only loses its
# network and its slurmd, so that its tasks live on. The job goes on with two nodes, and the orphans, which slept
# meanwhile, end without touching the checkpoints of the new life.
source "$(dirname "$0")/lib.sh"
elastic_on_four
mapfile -t orphans < <(tasks "$job" neox-train 6; tasks "$job" neox-train 7)
[[ ${#orphans[@]} == 2 ]] || fail "processes of ranks 6 and 7: ${orphans[*]}"
kill -STOP "${orphans[@]}"
kill -KILL "$(slurmd_of node4)"
login ip link set port4 down
"$here/slurm_cluster" kill-node node1
say "node1 is dead, node4 cut off with stopped tasks"

wait_until 180 "the restart" restarted "$job"
wait_until 180 "a step of the new life" grep -q 'resuming from' "$fsx/elastic/job.out"
login ip link set port4 up
kill -CONT "${orphans[@]}"
wait_until 20 "the end of the orphans" gone "${orphans[@]}"
say "the orphans have ended"
wait_for "$job" 240 COMPLETED
[[ $(field "$job" NumNodes) == 2 ]] || fail "the job ended on $(field "$job" NumNodes) nodes"
same_losses alone elastic "$long_steps" 1e-5
if ls -d "$fsx"/elastic/save/*.tmp-* 2> /dev/null; then fail "unfinished checkpoints are left"; fi
