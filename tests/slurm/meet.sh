#!/usr/bin/env bash
# A job whose ranks cannot form a world ends within its deadline and names the ranks and nodes that are to blame.
source "$(dirname "$0")/lib.sh"
need_cluster
up --nodes 2
make_data
new_run one "${short[@]}"
new_run other "${short[@]}" "seed: 7"

# step NAME CODE COMMAND: `srun COMMAND` on 2 x 2 tasks, COMMAND in bash; it must end with that exit code by itself.
step() {
  local code=0
  login timeout 60 srun --mpi=pmix -l -N2 --ntasks-per-node=2 --kill-on-bad-exit=0 bash -c "$3" > "$fsx/$1.out" 2>&1 || code=$?
  [[ $code == "$2" ]] || fail "$1: srun ended with $code, not $2"
  say "$1: exit code $code"
}

step different 64 "exec neox-train $fsx/\$([ \$SLURM_PROCID = 3 ] && echo other || echo one)/config.yml"
expect "$fsx/different.out" 'seed.*rank 3 .*node2'

export NEOX_JOIN_SECONDS=4
step missing 76 "[ \$SLURM_PROCID != 2 ] || exec sleep 20; exec neox-train $fsx/one/config.yml"
expect "$fsx/missing.out" 'rank 2 .*node2'
unset NEOX_JOIN_SECONDS
