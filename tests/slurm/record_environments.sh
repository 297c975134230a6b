#!/usr/bin/env bash
# Records what the processes of Slurm jobs find in their environment, on a cluster of slurm_cluster: the launchers'
# variables as OUT/CASE.RANK.env, and in OUT/ranks.txt who each process is, found by counting processes and hosts.
# Of a shell, which is no rank, the size is 0.
# Usage: record_environments.sh OUT      (tests/golden/environments is of Slurm 22.05.8 and Open MPI 4.1.4)
set -euo pipefail
self=$(readlink -f "$0")
names='SLURM|SRUN|PMI|PMIX|OMPI|OPAL|ORTE|CUDA_VISIBLE|GPU_DEVICE|ROCR_VISIBLE|ZE_AFFINITY|RANK|WORLD_SIZE|LOCAL_|MASTER_|HOSTNAME'

# In a process of a job: record CASE RANK_VARIABLE; of a shell, without a variable.
record() {
  local rank=0
  if [[ -n ${2-} ]]; then rank=${!2}; fi
  env | grep -E "^($names)[A-Za-z_0-9]*=" | grep -v '^SLURM_CLUSTER_[DF]' |
    sed "s#$SLURM_CLUSTER_DIR#/var/spool/slurm#g; s#$PWD#/fsx/project#g" | LC_ALL=C sort > "$SLURM_CLUSTER_FSX/$1.$rank.env"
  echo "$1 $rank $(uname -n) $([[ -n ${2-} ]] && echo yes || echo no)" > "$SLURM_CLUSTER_FSX/$1.$rank.seen"
}

# job CASE LINE SBATCH_OPTION...: runs LINE as a job script, in which $shell, $slurm and $mpi record a process.
job() {
  local id state=PENDING
  id=$("${cluster[@]}" sbatch --parsable --output="$SLURM_CLUSTER_DIR/log/$1.out" "${@:3}" <<SCRIPT
#!/bin/bash
shell="$self --record $1" slurm="$self --record $1 SLURM_PROCID" mpi="$self --record $1 OMPI_COMM_WORLD_RANK"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
$2
SCRIPT
  )
  until [[ $state =~ ^(COMPLETED|FAILED|TIMEOUT|CANCELLED|NODE_FAIL) ]]; do
    sleep 0.2
    state=$("${cluster[@]}" scontrol show job "$id" --oneliner | sed 's/.*JobState=\([A-Z_]*\).*/\1/')
  done
  [[ $state == COMPLETED ]] || { echo "$1: $state" >&2; cat "$SLURM_CLUSTER_DIR/log/$1.out" >&2; exit 1; }
  echo "recorded $1"
}

# shellcheck disable=SC2016 # the job's shell expands them
main() {
  local out=$1
  eval "$("$(dirname "$self")/slurm_cluster" up --nodes 3 --cpus 8 --gres gpu:4)"
  trap '"$(dirname "$self")/slurm_cluster" down' EXIT
  cluster=("$(dirname "$self")/slurm_cluster" run --)

  job batch_shell '$shell' -N2 --ntasks-per-node=2
  job srun 'srun $slurm' -N2 --ntasks-per-node=2
  job srun_pmix 'srun --mpi=pmix $slurm' -N2 --ntasks-per-node=2
  job srun_pmi2 'srun --mpi=pmi2 $slurm' -N2 --ntasks-per-node=2
  job srun_one_task 'srun -N1 -n1 $slurm' -N2 --ntasks-per-node=2
  job srun_exported 'srun -E -N1 -n2 $slurm' -N2 --ntasks-per-node=2
  job uneven 'srun $slurm' -N3 -n12
  job cyclic 'srun -n8 -m cyclic $slurm' -N3 --ntasks-per-node=3
  job cyclic_pmix 'srun -n8 -m cyclic --mpi=pmix $slurm' -N3 --ntasks-per-node=3
  job last_nodes 'srun -r1 -N2 -n4 $slurm' -N3 --ntasks-per-node=2
  job mpirun 'mpirun $mpi' -N2 --ntasks-per-node=2
  job gpus_of_node 'srun $slurm' -N2 --ntasks-per-node=4 --gpus-per-node=4
  job gpus_per_task 'srun --gpus-per-task=1 $slurm' -N2 --ntasks-per-node=4 --gpus-per-node=4
  "${cluster[@]}" salloc --quiet -N2 -n4 "$self" --record salloc_shell
  "${cluster[@]}" salloc --quiet -N2 -n4 srun "$self" --record salloc_srun SLURM_PROCID
  "${cluster[@]}" salloc --quiet -N1 -n1 : -N2 -n3 srun --het-group=0,1 "$self" --record het_group SLURM_PROCID
  "${cluster[@]}" srun -N2 -n4 "$self" --record srun_alone SLURM_PROCID

  mkdir -p "$out"
  find "$out" -name '*.env' -delete
  cp "$SLURM_CLUSTER_DIR"/fsx/*.env "$out"
  {
    echo '# case rank size local_rank local_size node nodes host'
    sort -k1,1 -k2,2n "$SLURM_CLUSTER_DIR"/fsx/*.seen | awk -f "$(dirname "$self")/count_ranks.awk" | sort -k1,1 -k2,2n
  } > "$out/ranks.txt"
}

case ${1-} in
  --record) shift; record "$@" ;;
  '' | -*) sed -n '2,5s/^# //p' "$self" >&2; exit 64 ;;
  *) main "$1" ;;
esac
