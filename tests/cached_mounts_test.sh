#!/usr/bin/env bash
# Ranks whose mounts of the shared storage remember for a minute what they have looked up, also that a file is not there,
# as NFS clients do for a while: two FUSE mounts of one directory stand for those of two nodes. A tokenizer is trained,
# data prepared, and a run saved and resumed by other layouts, by ranks that have changed their nodes.
# Usage: cached_mounts_test.sh BUILD_DIRECTORY
set -euo pipefail
build=$(cd "$1" && pwd)
export PATH=$build/bin:$PATH
for program in bindfs fusermount3 mpirun unshare; do
  command -v $program > /dev/null || { echo "skipped: $program is missing; env/setup.sh --tests installs it"; exit 77; }
done
temp=$(mktemp -d)
unmount() { for node in 0 1; do fusermount3 -uz "$temp/node$node" 2> /dev/null || true; done; rm -rf "$temp"; }
trap unmount EXIT
fail() { echo "FAILED: $1"; tail -n 20 "$temp"/*.log; exit 1; }
cd "$temp"
mkdir back node0 node1 shared
for node in 0 1; do
  bindfs -o attr_timeout=60,entry_timeout=60,negative_timeout=60 back node$node 2> bindfs.log ||
    { echo "skipped: no FUSE mounts here: $(cat bindfs.log)"; exit 77; }
done
unshare -m mount --bind node0 shared 2> /dev/null || { echo "skipped: this container may not bind mounts"; exit 77; }
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export ASAN_OPTIONS=detect_leaks=0  # MPI and PMIx leave memory behind

# on_nodes FIRST COMMAND...: four ranks, of which the even ones are on node FIRST and the odd ones on the other.
on_nodes() {
  local first=$1
  shift
  # shellcheck disable=SC2016 # each rank's own
  FIRST=$first mpirun --oversubscribe -n 4 unshare -m bash -c \
    'mount --bind "node$(((FIRST + OMPI_COMM_WORLD_RANK) % 2))" shared && exec "$@"' rank "$@" > "run.log" 2>&1 ||
    fail "$*, even ranks on node $first"
}

for ((i = 0; i < 3000; ++i)); do echo "{\"text\": \"the cat $i and the hat of $((i * 7919 % 1000))\"}"; done > back/in.jsonl
on_nodes 0 neox-prepare-data --input shared/in.jsonl --output-prefix shared/data --vocab-file shared/tokenizer.json --train-tokenizer 300
neox-prepare-data --input back/in.jsonl --output-prefix one --vocab-file back/tokenizer.json > one.log 2>&1 || fail "one process"
for ending in bin idx; do
  cmp "one_text_document.$ending" "back/data_text_document.$ending" || fail "four ranks wrote another .$ending"
done

cat > back/run.yml << YML
num_layers: 2
hidden_size: 32
num_attention_heads: 2
seq_length: 32
max_position_embeddings: 32
pos_emb: rotary
data_path: shared/data_text_document
tokenizer_type: HFTokenizer
vocab_file: shared/tokenizer.json
train_batch_size: 8
train_micro_batch_size_per_gpu: 1
train_iters: 30
optimizer: {type: Adam, params: {lr: 1.0e-3}}
zero_optimization: {stage: 1}
log_interval: 10
checkpoint_factor: 10
save: shared/run
load: shared/run
log_dir: shared/run
YML
first=0
for layout in model_parallel_size=2 model_parallel_size=1 pipe_parallel_size=2; do
  on_nodes $((first % 2)) neox-train shared/run.yml --set $layout --set exit_interval=$((first * 10 + 10))
  first=$((first + 1))
  [ "$(cat back/run/latest)" = global_step${first}0 ] || fail "behind $layout the latest is $(cat back/run/latest)"
done
grep -q 'resuming from shared/run/global_step20' run.log || fail "the last start did not resume"
echo "ranks on mounts that remember for a minute: prepared, trained, resumed"
