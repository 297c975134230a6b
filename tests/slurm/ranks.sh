#!/usr/bin/env bash
# Each process knows who it is, however its job was started: what `neox-doctor --ranks` says is compared with a count of
# processes and hosts, started in the same way.
source "$(dirname "$0")/lib.sh"
need_cluster
up --nodes 3 --cpus 8

# In the job script: ranks CASE RANK_VARIABLE LAUNCHER... starts both.
ranks='ranks() {
  local name=$1 rank=$2
  shift 2
  "$@" bash -c "echo $name \$$rank \$(uname -n) yes" >> $dir/seen
  "$@" neox-doctor --ranks > $dir/$name.told
}'
# job LINES SBATCH_OPTION...
job() {
  local id
  id=$(submit --output="$fsx/%j.out" "${@:2}" <<< "#!/bin/bash
set -e
dir=$fsx
$ranks
$1")
  wait_for "$id" 180 COMPLETED
}

job 'ranks srun SLURM_PROCID srun
ranks pmix SLURM_PROCID srun --mpi=pmix
ranks cyclic SLURM_PROCID srun -n8 -m cyclic
ranks cyclic_pmix SLURM_PROCID srun -n8 -m cyclic --mpi=pmix
ranks last_nodes SLURM_PROCID srun -r1 -N2 -n4
ranks one_task SLURM_PROCID srun -r2 -N1 -n1
ranks mpirun OMPI_COMM_WORLD_RANK mpirun
neox-doctor --ranks > $dir/shell.told && exit 1
[ $? = 64 ]' -N3 --ntasks-per-node=3
expect "$fsx/1.out" 'batch shell of Slurm job 1.* srun'
say "a batch shell is refused"
job 'ranks uneven SLURM_PROCID srun' -N3 -n12
login salloc --quiet -N2 -n4 neox-doctor --ranks > "$fsx/salloc.told"
expect "$fsx/salloc.told" "^rank=0 size=1 .*launcher='alone'"

sort -k1,1 -k2,2n "$fsx/seen" | awk -f "$here/count_ranks.awk" | sort > "$fsx/counted"
for told in "$fsx"/*.told; do
  name=$(basename "$told" .told)
  sed -nE "s/^rank=([0-9]+) size=([0-9]+) local_rank=([0-9]+) local_size=([0-9]+) node=([0-9?]+) num_nodes=([0-9?]+) host=(\S+) .*/$name \1 \2 \3 \4 \5 \6 \7/p" "$told"
done | grep -v '^salloc ' | sort > "$fsx/all.told"
# mpirun does not tell nodes; the rendezvous counts them.
sed -i -E 's/^(mpirun( \S+){4}) \S+ \S+ /\1 ? ? /' "$fsx/counted"
diff "$fsx/counted" "$fsx/all.told" || fail "counted (<) and told (>) differ"
say "$(wc -l < "$fsx/counted") processes know who they are: $(cut -d' ' -f1 "$fsx/counted" | uniq -c | awk '{ print $2, $1 }' | xargs)"
