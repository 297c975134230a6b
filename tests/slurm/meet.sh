#!/usr/bin/env bash
# A job whose ranks cannot form a world ends by itself and names the ranks and nodes that are to blame: different
# configurations, one rank started twice, and, with --full since that takes its deadline of 300 s, a rank that never
# comes. Two jobs that are told the same port do not disturb each other.
source "$(dirname "$0")/lib.sh"
need_cluster
up --nodes 2
make_data
for name in one two; do new_run $name "train_iters: 5" "checkpoint_factor: 5"; done
new_run other "train_iters: 5" "checkpoint_factor: 5" "seed: 7"

# step NAME CODE TASKS LINE: `srun bash -c LINE` on both nodes; it must end with that exit code by itself, in 60 s.
step() {
  local code=0
  login timeout "${limit:-60}" srun --mpi=pmix --label --nodes=2 --ntasks="$3" bash -c "$4" > "$fsx/$1.out" 2>&1 || code=$?
  [[ $code == "$2" ]] || fail "$1: srun ended with $code, not $2"
  say "$1: exit code $code"
}
export fsx

# shellcheck disable=SC2016 # the tasks' shells expand them
{
  step different 64 4 'case $SLURM_PROCID in 3) run=other ;; *) run=one ;; esac; exec neox-train $fsx/$run/config.yml'
  expect "$fsx/different.out" 'seed is .* on rank 3 on node2'

  by_hand='export NEOX_RANK=$SLURM_PROCID NEOX_WORLD_SIZE=$SLURM_NTASKS NEOX_LOCAL_RANK=0 NEOX_LOCAL_SIZE=1 NEOX_MASTER=node1:15555'
  step twice 64 3 "$by_hand"' NEOX_LIFE=twice; [ $NEOX_RANK != 2 ] || NEOX_RANK=1; exec neox-train $fsx/one/config.yml'
  expect "$fsx/twice.out" 'rank 1 is taken by pid .* on node. and pid .* on node.; start each rank once'

  step one 0 2 "$by_hand"' NEOX_LIFE=one; exec neox-train $fsx/one/config.yml' &
  step two 0 2 "$by_hand"' NEOX_LIFE=two; exec neox-train $fsx/two/config.yml'
  wait $! || fail "the other job at the same port"
  same_losses one two 5 bits

  if [[ $full == --full ]]; then
    limit=400 step missing 76 4 '[ $SLURM_PROCID != 2 ] || exec sleep 330; exec neox-train $fsx/one/config.yml'
    expect "$fsx/missing.out" 'rank 2 on node2 of 4 did not arrive within 300 s'
  fi
}
