#!/usr/bin/env bash
# neox-doctor over an allocation: it measures every node and names the one that lacks a directory.
source "$(dirname "$0")/lib.sh"
need_cluster
up --nodes 3 --cpus 4

login mkdir "$fsx/data"
code=0
login srun -N3 --ntasks-per-node=2 --mpi=pmix neox-doctor --path "$fsx/data" --size 8 > "$fsx/report" || code=$?
cat "$fsx/report"
# The nodes share the cores of this machine, so that one may well be slow.
((code == 0 || code == 70)) || fail "neox-doctor ended with $code"
for column in 'fp32 matmul TFLOP/s' 'all-reduce GB/s' 'all-reduce of all GB/s' 'clock s'; do
  expect "$fsx/report" "^node .* $column"
done
for node in node1 node2 node3; do expect "$fsx/report" "^$node +2 "; done
[[ -z $(ls -A "$fsx/data") ]] || fail "left behind: $(ls -A "$fsx/data")"
say "three nodes are measured"

for node in node1 node3; do "$here/slurm_cluster" run --node $node -- mkdir /tmp/local; done
code=0
login srun -N3 --ntasks-per-node=2 --mpi=pmix neox-doctor --path /tmp/local --size 1 > "$fsx/report" || code=$?
((code == 70)) || fail "neox-doctor ended with $code, not 70"
expect "$fsx/report" 'node2: /tmp/local is not a directory here'
expect "$fsx/report" '^to do without: --exclude=.*node2'
say "the node without the directory is named"
