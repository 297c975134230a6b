#!/usr/bin/env bash
# A job of --nodes=2-4 loses two of its four nodes: the one with the job script dies, and another only loses its
# network and its slurmd, so that its tasks live on. The job goes on with two nodes, and the orphans, which slept
# meanwhile, end without touching the checkpoints of the new life. Slurm's own process of the step on a third node is
# killed too, so that the files of its PMIx stay there; a step of the same number could not start on that node again.
source "$(dirname "$0")/lib.sh"
elastic_on_four
mapfile -t orphans < <(tasks "$job" neox-train 6; tasks "$job" neox-train 7)
[[ ${#orphans[@]} == 2 ]] || fail "processes of ranks 6 and 7: ${orphans[*]}"
mapfile -t third < <(tasks "$job" neox-train 2)
[[ ${#third[@]} == 1 ]] || fail "processes of rank 2: ${third[*]}"
stepd=$(ps -o ppid= -p "${third[0]}" | tr -d ' ')
[[ $(cat "/proc/$stepd/comm") == slurmstepd ]] || fail "rank 2 was started by $(cat "/proc/$stepd/comm")"
kill -STOP "${orphans[@]}"
kill -KILL "$(slurmd_of node4)"
login ip link set port4 down
"$here/slurm_cluster" kill-node node1
kill -KILL "$stepd"
say "node1 is dead, node4 cut off with stopped tasks, node2 without its slurmstepd"

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
