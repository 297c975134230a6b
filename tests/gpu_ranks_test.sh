#!/usr/bin/env bash
# What jobs of several ranks ask of GPUs and of NCCL, on a machine without either (tests/cuda_stand_in): nothing that CUDA would
# refuse; each rank keeps to its GPU, in all its threads; operations come in one order on all ranks; and mistakes name the rank.
# Usage: gpu_ranks_test.sh BUILD_DIRECTORY LIBRARY NCCL_LIBRARY
set -euo pipefail
nccl=$(realpath "$3")
source "$(dirname "$0")/gpu_stand_in.sh" "$1" "$2"

# start RANKS NAME [KEY=VALUE...]: NAME.R.out, NAME.R.calls and NAME.R.code of each rank.
start() {
  local ranks=$1 name=$2 port=$((20000 + RANDOM % 10000)) rank setting options=()
  shift 2
  for setting in "$@"; do options+=(--set "$setting"); done
  mkdir -p "$name.nccl"
  for ((rank = 0; rank < ranks; ++rank)); do
    (
      touch "$name.$rank.calls"  # of a rank that idles
      export CUDA_STAND_IN_DEVICES=${DEVICES:-$ranks} CUDA_STAND_IN_LOG=$PWD/$name.$rank.calls NCCL_STAND_IN_DIR=$PWD/$name.nccl
      export NEOX_RANK=$rank NEOX_WORLD_SIZE=$ranks NEOX_LOCAL_RANK=$rank NEOX_LOCAL_SIZE=$ranks NEOX_MASTER=127.0.0.1:$port
      [ "$rank" = "${FAILING_RANK:-1}" ] && export NCCL_STAND_IN_FAILS=${FAILS:-} NCCL_STAND_IN_VERSION=${OTHER_VERSION:-} \
        CUDA_STAND_IN_FAILS=${GRAPHS:-}
      code=0
      LD_PRELOAD="$library $nccl" timeout 120 "$bin/neox-train" tiny.yml "${options[@]}" > "$name.$rank.out" 2>&1 || code=$?
      echo "$code" > "$name.$rank.code"
    ) &
  done
  wait
}

# operations NAME RANK: of NCCL, in the order of the host, with their kinds of groups.
operations() { grep -o ' NCCL .*' "$1.$2.calls" | sed 's/of[0-9]*//g' || true; }

# trains RANKS NAME [KEY=VALUE...]: nine steps.
trains() {
  local ranks=$1 name=$2 rank
  CUDA_STAND_IN_READS="1.0 1.0 0.001 1.0 1.0 0.0 0.0, 1.0 1.0 0.0 0.0" start "$@"
  for ((rank = 0; rank < ranks; ++rank)); do
    [ "$(cat "$name.$rank.code")" = 0 ] || { fail "$name: rank $rank ends with $(cat "$name.$rank.code")"; tail -n 3 "$name.$rank.out"; }
    { grep '^refused' "$name.$rank.calls" || true; } | sort | uniq -c | head -n 5 > refused
    [ -s refused ] && { fail "$name: rank $rank is refused"; cat refused; }
  done
  grep -q 'step 9/9' "$name.0.out" || fail "$name: ends early"
  echo "$name: $(operations "$name" 0 | wc -l) operations of NCCL"
}

# says RANKS NAME CODE TEXT [KEY=VALUE...]: a job that all ranks end with that code, and each with that text.
says() {
  local ranks=$1 name=$2 code=$3 text=$4 rank
  shift 4
  CUDA_STAND_IN_READS="1.0 1.0 0.001 1.0 1.0 0.0 0.0" start "$ranks" "$name" "$@"
  for ((rank = 0; rank < ranks; ++rank)); do
    [ "$(cat "$name.$rank.code")" = "$code" ] || fail "$name: rank $rank ends with $(cat "$name.$rank.code"), not $code"
    grep -qE "$text" "$name.$rank.out" || { fail "$name: rank $rank does not say: $text"; tail -n 3 "$name.$rank.out"; }
  done
}

trains 2 replicas save=saved checkpoint_factor=3 async_save=true sample_prompts='["Line"]' eval_interval=4 eval_iters=1 split='"8,1,1"' temperature=0.8 maximum_tokens=8
trains 2 sharded zero_optimization.stage=1 train_micro_batch_size_per_gpu=2
trains 3 chunks zero_optimization.stage=2 train_micro_batch_size_per_gpu=1 train_batch_size=6
trains 2 gathered zero_optimization.stage=3 train_micro_batch_size_per_gpu=2 save=gathered_saved checkpoint_factor=3 sample_prompts='["Line"]' eval_interval=4 eval_iters=1 split='"8,1,1"' temperature=0.8 maximum_tokens=8
trains 2 tensor model_parallel_size=2 sample_prompts='["Line"]' eval_interval=4 eval_iters=1 split='"8,1,1"' temperature=0.8 maximum_tokens=8
trains 2 sequence model_parallel_size=2 sequence_parallel=true hidden_dropout=0.1 train_micro_batch_size_per_gpu=2 sample_prompts='["Line"]' eval_interval=4 eval_iters=1 split='"8,1,1"' temperature=0.8 maximum_tokens=8
trains 2 stages pipe_parallel_size=2 train_micro_batch_size_per_gpu=2
trains 4 both model_parallel_size=2 zero_optimization.stage=1 train_micro_batch_size_per_gpu=2 checkpoint_activations=true
trains 3 short pipe_parallel_size=3
trains 8 all model_parallel_size=2 pipe_parallel_size=2 zero_optimization.stage=1 train_micro_batch_size_per_gpu=2 no_weight_tying=false
trains 8 mixed model_parallel_size=2 pipe_parallel_size=2 zero_optimization.stage=3 train_micro_batch_size_per_gpu=2 checkpoint_activations=true
trains 4 tokens model_parallel_size=2 pipe_parallel_size=2 sequence_parallel=true train_micro_batch_size_per_gpu=2
trains 2 muon optimizer.type=Muon zero_optimization.stage=1
trains 2 onebit optimizer.type=OneBitAdam
trains 2 recorded enable_cuda_graph=true zero_optimization.stage=1 train_micro_batch_size_per_gpu=2 save=recorded_saved checkpoint_factor=3
trains 2 recorded_tokens enable_cuda_graph=true model_parallel_size=2 sequence_parallel=true train_micro_batch_size_per_gpu=2
trains 3 idle model_parallel_size=2
trains 6 owned optimizer.type=Muon zero_optimization.stage=1

# One process that starts the ranks, and tells both the same place to meet.
mkdir spawned.nccl
CUDA_STAND_IN_READS="1.0 1.0 0.001 1.0 1.0 0.0 0.0, 1.0 1.0 0.0 0.0" CUDA_STAND_IN_DEVICES=2 CUDA_STAND_IN_LOG=$PWD/spawned.calls \
  NCCL_STAND_IN_DIR=$PWD/spawned.nccl LD_PRELOAD="$library $nccl" timeout 120 "$bin/neox-train" tiny.yml --spawn 2 > spawned.out 2>&1 ||
  fail "spawned: ends with $?: $(tail -n 3 spawned.out)"
grep -q 'step 9/9' spawned.out || fail "spawned: ends early"

for name in replicas sharded gathered tensor sequence both; do
  [ "$(operations $name 0)" = "$(operations $name 1)" ] || { operations $name 0 > a; operations $name 1 > b; fail "$name: $(diff a b | head -n 5)"; }
done
for name in replicas sharded gathered tensor sequence; do
  grep -q 'capture' $name.0.calls && fail "$name: something is recorded, though several ranks train"
done

DEVICES=1 says 2 shared 64 'ranks 0 and 1 have the same GPU of .*start one task per GPU'
DEVICES=2 says 3 few 64 '3 ranks run on this node, but 2 GPUs are visible'
OTHER_VERSION=22703 says 2 versions 64 'what ranks talk through is NCCL 2.2.*, but NCCL 2.2.* on .*it must be the same on all ranks'
FAILING_RANK=0 FAILS=ncclGetUniqueId says 2 interface 70 'NCCL on rank 0 failed: ncclGetUniqueId: .*no socket interface found'
FAILS=ncclCommInitRankConfig says 3 init 70 'rank 1 on .*init in group of all ranks .rank 1 of 3.*no socket interface found'
GRAPHS=12 says 2 fails 76 'uncorrectable ECC error' enable_cuda_graph=true
[ $failed = 0 ] && echo "several ranks keep to their GPUs"
exit $failed
