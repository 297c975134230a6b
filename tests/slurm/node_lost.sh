#!/usr/bin/env bash
# A job of --nodes=2-4 loses one of its four nodes: it is requeued and goes on with three, with the same batch and the
# same samples, so with the losses of a run that was never interrupted.
source "$(dirname "$0")/lib.sh"
elastic_on_four
"$here/slurm_cluster" kill-node node3
since=$EPOCHREALTIME
wait_until 15 "all ranks to end after a node was lost" no_tasks "$job" neox-train
say "all ranks have ended within $(elapsed "$since") s"
expect "$fsx/elastic/job.out" 'ranks? (4|5|4-5) on node3'

wait_until 180 "the restart" restarted "$job"
wait_for "$job" 240 COMPLETED
expect "$fsx/elastic/job.out" 'resuming from .*global_step'
[[ $(field "$job" NumNodes) == 3 ]] || fail "the job ended on $(field "$job" NumNodes) nodes"
same_losses alone elastic "$long_steps" 1e-5
