#!/usr/bin/env bash
# What the programs ask of a GPU, on a machine without one (tests/cuda_stand_in): nothing that CUDA would refuse, also while a
# step is recorded; and in a step of a run that is under way no wait, no allocation, and next to nothing but recorded work.
# Usage: gpu_calls_test.sh BUILD_DIRECTORY LIBRARY
set -euo pipefail
source "$(dirname "$0")/gpu_stand_in.sh" "$1" "$2"

# What is asked from one step's report to the next, the last but one of a run.
steady_step() {
  awk '/copy of 56, device to pinned/ { before = step; step = ""; next } { step = step $0 "\n" } END { printf "%s", before }' "$1.calls"
}

# train NAME [KEY=VALUE...]: nine steps, of which a report says that they were finite.
train() {
  local name=$1 setting options=()
  shift
  for setting in "$@"; do options+=(--set "$setting"); done
  CUDA_STAND_IN_READS="1.0 1.0 0.001 1.0 1.0 0.0 0.0" on_gpu "$name" "$bin/neox-train" tiny.yml "${options[@]}"
  grep -q 'step 9/9' "$name.out" || fail "$name: ends early: $(tail -n 3 "$name.out")"
}

# recorded NAME [KEY=VALUE...]: a steady step is graphs and a few kernels between them; the wait is for an earlier step's report.
recorded() {
  train "$@"
  steady_step "$1" > step
  [ "$(grep -c 'graph of' step)" -ge 4 ] || fail "$1: the step is not recorded: $(grep -c 'graph of' step) graphs"
  [ "$(grep -cE 'kernel|product|cuDNN' step)" -le 12 ] || fail "$1: $(grep -cE 'kernel|product|cuDNN' step) kernels beside the graphs"
  grep '^wait' step | grep -vE ' [1-9][0-9]* pieces of work before its end' && fail "$1: a step waits"
  # How many batches are read ahead of the GPU, and so how much pinned memory they take, is the host's speed.
  grep -E '^allocates|pageable' step | grep -v '^allocates pinned' && fail "$1: a step allocates, or copies pageable memory"
  echo "$1: graphs of $(sed -n 's/.*graph of \([0-9]*\) nodes/\1/p' step | xargs) nodes"
}

recorded plain
recorded accumulated train_micro_batch_size_per_gpu=2
recorded fp16 precision=fp16
recorded fp32 precision=fp32
recorded dropout hidden_dropout=0.1 attention_dropout=0.1
recorded recomputed checkpoint_activations=true
recorded gpt2 pos_emb=learned gpt_j_residual=false no_weight_tying=false
recorded alibi pos_emb=alibi
recorded relative pos_emb=rpe
recorded grouped num_kv_heads=2 norm=rmsnorm activation=swiglu
recorded scalenorm norm=scalenorm use_qk_layernorm=true
recorded plain_norms norm=non_parametric_layernorm
recorded documents reset_attention_mask=true eod_mask_loss=true reset_position_ids=true
recorded muon optimizer.type=Muon
recorded zero zero_optimization.stage=1
recorded gradients data_types.grad_accum_dtype=bf16 train_micro_batch_size_per_gpu=2
# Nothing of shorter sequences is recorded: its memory would stay.
short="enabled: true, min_difficulty: 16, max_difficulty: 64, schedule_type: fixed_discrete, schedule_config"
train growing curriculum_learning="{$short: {difficulty: [16, 64], max_step: [8]}}"
grep 'graph of [1-9][0-9][0-9]' growing.calls && fail "growing: the steps of a length that does not stay are recorded"
recorded grown curriculum_learning="{$short: {difficulty: [16, 32, 64], max_step: [1, 3]}}"
recorded qwen kv_channels=24 add_qkv_bias=true use_bias_in_attn_linear=false norm=rmsnorm activation=swiglu
recorded bloom pos_emb=alibi embed_layernorm=true bias_gelu_fusion=true gpt_j_residual=false no_weight_tying=false
recorded saved save=saved checkpoint_factor=3 async_save=true
train eager enable_cuda_graph=false profile=true profile_step_start=4 profile_step_stop=6 memory_profiling=true
train offloaded zero_optimization='{stage: 1, offload_optimizer: {device: cpu}}'
train onebit optimizer.type=OneBitAdam

# A step for which memory suffices but once goes on without its recording, whose memory is free then.
long=(seq_length=2048 max_position_embeddings=2048 checkpoint_activations=false)
train long "${long[@]}" enable_cuda_graph=false
peak=$(sed -n 's/.*on the GPU \([0-9.]*\) MB.*/\1/p' long.out | tail -n 1)
export CUDA_STAND_IN_MEMORY=$((${peak%.*} * 1500000)) CUDA_STAND_IN_UNMADE=2
train unmade "${long[@]}"
unset CUDA_STAND_IN_MEMORY CUDA_STAND_IN_UNMADE
grep -q 'the training step is not recorded as a CUDA graph' unmade.out || fail "unmade: no warning"

# A GPU that fails ends the run with 76, for which a job is started again on other nodes: also where the memory that it was to copy
# to is taken back meanwhile, from which LibTorch ends the program.
for graphs in 3 8; do
  code=0
  CUDA_STAND_IN_FAILS=$graphs CUDA_STAND_IN_READS="1.0 1.0 0.001 1.0 1.0 0.0 0.0" \
    LD_PRELOAD=$library "$bin/neox-train" tiny.yml > fails.out 2>&1 || code=$?
  [ "$code" = 76 ] && grep -q 'neox-train: CUDA error: uncorrectable ECC error' fails.out || fail "a GPU that fails: code $code, $(tail -n 3 fails.out)"
done

# Who waits for a text then is told.
CUDA_STAND_IN_FAILS=6 CUDA_STAND_IN_READS=7 LD_PRELOAD=$library "$bin/neox-serve" saved --listen 127.0.0.1:0 > serve.out 2>&1 &
server=$! port=""
for _ in $(seq 300); do
  port=$(sed -n 's,.*http://127.0.0.1:\([0-9]*\).*,\1,p' serve.out | head -n 1)
  if [ -n "$port" ] || ! kill -0 $server 2> /dev/null; then break; fi
  sleep 0.1
done
if [ -n "$port" ]; then
  exec 3<> "/dev/tcp/127.0.0.1/$port"
  body='{"prompt": "Line", "max_tokens": 30, "temperature": 0}'
  printf 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' ${#body} "$body" >&3
  timeout 60 cat <&3 > served.out || true
  exec 3>&-
else
  kill $server || true
fi
code=0
wait $server || code=$?
[ "$code" = 76 ] && grep -q 'HTTP/1.1 503' served.out && grep -q 'uncorrectable ECC error' served.out ||
  fail "neox-serve where a GPU fails: code $code, $(cat served.out), $(tail -n 3 serve.out)"

# A token is one graph, and the host looks at it later.
CUDA_STAND_IN_READS=7 on_gpu greedy "$bin/neox-generate" saved --prompt "Line" --max-tokens 40
[ "$(grep -c 'graph of' greedy.calls)" -ge 30 ] || fail "greedy: the steps of generation are not recorded"
[ "$(grep -cE '^wait for an event .* [1-9][0-9]* pieces' greedy.calls)" -ge 30 ] || fail "greedy: each token is waited for"
# Prompts of about the same length are read together: one after the other they would be four times the products.
CUDA_STAND_IN_READS=7 on_gpu together "$bin/neox-generate" saved --prompt "Line 1" --prompt "Line 2" --prompt "Line 3" --prompt "Line 4" \
  --batch-size 4 --max-tokens 1
CUDA_STAND_IN_READS=7 on_gpu alone "$bin/neox-generate" saved --prompt "Line 3" --batch-size 4 --max-tokens 1
together=$(grep -c product together.calls) alone=$(grep -c product alone.calls)
[ "$together" -le $((alone + 2)) ] || fail "prompts: $together products for four prompts, $alone for one"
# Where a block has 99 KB of shared memory (A10G, L4, L40S), a batch takes other kernels.
CUDA_STAND_IN_SHARED=65536 CUDA_STAND_IN_READS=7 on_gpu little "$bin/neox-generate" saved --prompt "Line 1" --prompt "Line 2" \
  --prompt "Line 3" --batch-size 3 --max-tokens 12
grep -q 'graph of' little.calls || fail "little shared memory: no step is recorded"
# What many prompts took stays at hand for the next ones, also when the steps behind them are recorded.
for line in {100..299}; do echo "Line $line: the quick brown fox jumps over 100 lazy dogs."; done > prompts.txt
CUDA_STAND_IN_READS=7 on_gpu many "$bin/neox-generate" saved --file prompts.txt --batch-size 200 --max-tokens 12
grep -q 'graph of' many.calls || fail "many prompts: no step is recorded"
tac many.calls | sed '1,/graph of/d' | grep 'wait to free memory' && fail "many prompts: their memory is given back to the device"
on_gpu sampled "$bin/neox-generate" saved --prompt "Line" --max-tokens 20 --temperature 0.8 --num-samples 12
[ $failed = 0 ] && echo "nothing that CUDA refuses"
exit $failed
