#!/usr/bin/env bash
# On a machine with a GPU: training and generation with what configurations can ask for, there and on the CPU of the same
# machine; losses must agree, and texts be the same. Usage: gpu_features_test.sh BUILD_DIRECTORY [NAME...]
# Without a GPU it ends with 77 (skipped). NEOX_TEST_DEVICE=cpu compares the CPU with itself, to try the script.
set -euo pipefail
build=$(cd "$1" && pwd) bin=$build/bin
shift
chosen=" $* "
export OMP_NUM_THREADS=1
if [ "${NEOX_TEST_DEVICE:-cuda}" = cpu ]; then first=cpu; elif [ -e /dev/nvidiactl ]; then first=cuda; else echo "no GPU"; exit 77; fi
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"

for line in {1..400}; do echo "{\"text\": \"Line $line: the quick brown fox jumps over $((line * 7919 % 1000)) lazy dogs.\"}"; done > text.jsonl
for line in {1..200}; do
  for answer in chosen rejected; do
    echo "\"$answer\": [{\"role\": \"user\", \"content\": \"line $line\"}, {\"role\": \"assistant\", \"content\": \"$answer $((line * 7919 % 1000))\"}]"
  done | paste -sd, | sed 's/.*/{&}/'
done > pairs.jsonl
prepare() {
  "$bin/neox-prepare-data" --tokenizer-type HFTokenizer --vocab-file tokenizer.json --append-eod --workers 1 "$@" \
    > prepare.log 2>&1 || { cat prepare.log; exit 1; }
}
prepare --input text.jsonl --output-prefix data --train-tokenizer 300
prepare --input pairs.jsonl --output-prefix pairs --jsonl-keys chosen rejected --chat-template plain --only-last
cat > tiny.yml << END
{num_layers: 3, hidden_size: 64, num_attention_heads: 4, seq_length: 64, max_position_embeddings: 64, pos_emb: rotary, rotary_pct: 0.25,
 no_weight_tying: true, gpt_j_residual: true, precision: fp32, train_iters: 7, log_interval: 1, train_batch_size: 8,
 train_micro_batch_size_per_gpu: 8, eval_iters: 2, eval_interval: 4, split: "8,2,0", data_path: data_text_document,
 tokenizer_type: HFTokenizer, vocab_file: tokenizer.json, optimizer: {type: Adam, params: {lr: 1.0e-3}}, gradient_clipping: 1.0}
END

# train DEVICE NAME [KEY=VALUE...]: NAME.DEVICE.losses, of training, validation and the gradients' norm in turn.
train() {
  local device=$1 name=$2 setting options=()
  shift 2
  for setting in "$@"; do options+=(--set "$setting"); done
  [ "$device" = cuda ] || export CUDA_VISIBLE_DEVICES=
  "$bin/neox-train" tiny.yml --set log_dir="$name.$device" --set save="$name.$device.saved" --set checkpoint_factor=7 \
    "${options[@]}" > "$name.$device.out" 2>&1 || { echo "exit code $?" >> "$name.$device.out"; return 1; }
  grep -hoE '"(train/(lm_loss|grad_norm)|validation/lm_loss)": *[^,}]*' "$name.$device"/metrics.jsonl | tr -d '"' | tr : ' ' > "$name.$device.losses"
}

# compare NAME TOLERANCE [KEY=VALUE...]
compare() {
  local name=$1 tolerance=$2 worst
  shift 2
  train "$first" "$name" "$@" || { echo "FAILED $name on $first: $(grep -v '^ *$' "$name.$first.out" | tail -n 3 | paste -sd' ')"; return 1; }
  mkdir -p reference
  (cd reference && cp ../tiny.yml ../tokenizer.json . && ln -sf ../data* ../pairs* . && train cpu "$name" "$@") ||
    { echo "FAILED $name on cpu: $(tail -n 3 "reference/$name.cpu.out" | paste -sd' ')"; return 1; }
  worst=$(paste "$name.$first.losses" "reference/$name.cpu.losses" | awk -v tolerance="$tolerance" '
    $1 != $3 { bad = 1 }
    { d = ($2 - $4) / ($4 ? $4 : 1); if (d < 0) d = -d; if (!(d <= tolerance)) bad = 1; if (d > worst) worst = d; n++ }
    END { printf "%d values, at most %.1e apart", n, worst; exit bad || n < 14 }') ||
    { echo "FAILED $name: $worst, allowed $tolerance"; paste "$name.$first.losses" "reference/$name.cpu.losses"; return 1; }
  echo "$name: $worst"
}

experts="moe_num_experts=4 moe_top_k=2"
dpo="train_impl=dpo dataset_impl=pairwise pack_impl=unpacked dpo_reference_free=true data_path=null split=1,0,0 eval_iters=0"
for sign in pos neg; do
  pair=$([ $sign = pos ] && echo chosen || echo rejected)
  dpo+=" ${sign}_train_data_paths=[pairs_${pair}_document] ${sign}_train_label_data_paths=[pairs_${pair}_label_document]"
done
cases() {
  cat << END
fp32 1e-4
bf16 3e-2 precision=bfloat16
fp16 3e-2 precision=fp16
accumulated 1e-4 train_micro_batch_size_per_gpu=2
eager 1e-4 enable_cuda_graph=false
dropout 1e-4 hidden_dropout=0.1 attention_dropout=0.1
recomputed 1e-4 checkpoint_activations=true
gpt2 1e-4 pos_emb=learned gpt_j_residual=false no_weight_tying=false
alibi 1e-4 pos_emb=alibi
relative 1e-4 pos_emb=rpe
sinusoidal 1e-4 pos_emb=sinusoidal
llama 1e-4 num_kv_heads=2 norm=rmsnorm rms_norm_epsilon=1e-6 activation=swiglu gpt_j_residual=false rotary_pct=1.0 use_bias_in_attn_linear=false
mistral 1e-4 num_kv_heads=2 norm=rmsnorm rms_norm_epsilon=1e-6 activation=swiglu sliding_window_width=15
qk 1e-4 use_qk_layernorm=true
tied 1e-4 gpt_j_tied=true
scalenorm 1e-4 norm=scalenorm use_qk_layernorm=true
plain_norms 1e-4 norm=non_parametric_layernorm
geglu 1e-4 activation=geglu
relu 1e-4 activation=relu
mish 1e-4 activation=mish
documents 1e-4 reset_attention_mask=true eod_mask_loss=true reset_position_ids=true
experts 1e-4 $experts moe_router_type=topk
sinkhorn 1e-4 $experts moe_top_k=1 moe_router_type=sinkhorn
gated_experts 1e-4 $experts moe_router_type=topk activation=swiglu gpt_j_residual=false precision=fp32
experts_bf16 5e-2 $experts moe_router_type=topk precision=bfloat16
mup 1e-4 use_mup=true mup_base_hidden_size=32
dpo 1e-3 $dpo
adamw_offloaded 1e-4 zero_optimization.stage=1 zero_optimization.offload_optimizer.device=cpu
zero1 1e-4 zero_optimization.stage=1
zero3 1e-4 zero_optimization.stage=3
sgd 1e-4 optimizer.type=SGD
lion 1e-3 optimizer.type=Lion optimizer.params.lr=1e-4
muon 2e-2 optimizer.type=Muon
onebit 2e-2 optimizer.type=OneBitAdam
muon_bf16 5e-2 optimizer.type=Muon precision=bfloat16
norms 1e-4 log_grad_norm=true log_param_norm=true log_optimizer_states=true
noise 1e-4 log_gradient_noise_scale=true gradient_noise_scale_n_batches=2 train_micro_batch_size_per_gpu=4
head_sizes 1e-4 num_attention_heads=2 hidden_size=160
wide_heads 1e-4 num_attention_heads=1 hidden_size=256
qwen 1e-4 kv_channels=24 add_qkv_bias=true use_bias_in_attn_linear=false num_kv_heads=2 norm=rmsnorm activation=swiglu
bloom 1e-4 pos_emb=alibi embed_layernorm=true bias_gelu_fusion=true gpt_j_residual=false no_weight_tying=false
dropout_bf16 5e-2 hidden_dropout=0.1 attention_dropout=0.1 precision=bfloat16
gradients_bf16 5e-2 precision=bfloat16 data_types.grad_accum_dtype=bf16 train_micro_batch_size_per_gpu=2
ramp_up 1e-4 rampup_batch_size=[2,2,6] train_samples=46 train_iters=null train_micro_batch_size_per_gpu=2
END
}

# Those are saved by the runs before.
generate() {
  local name=$1 options=(--prompt "Line 1" --prompt "Line 23: the" --max-tokens 40 --temperature 0)
  "$bin/neox-generate" "$name.$first.saved" "${options[@]}" > "$name.$first.text" 2> "$name.$first.err" ||
    { echo "FAILED text of $name: $(tail -n 3 "$name.$first.err")"; return 1; }
  CUDA_VISIBLE_DEVICES='' "$bin/neox-generate" "$name.$first.saved" "${options[@]}" > "$name.cpu.text" 2> "$name.cpu.err" ||
    { echo "FAILED text of $name on the CPU: $(tail -n 3 "$name.cpu.err")"; return 1; }
  cmp -s "$name.$first.text" "$name.cpu.text" || { echo "FAILED text of $name:"; diff "$name.$first.text" "$name.cpu.text"; return 1; }
  echo "text of $name: the same"
}

one() {
  compare "$@" || return 1
  case $1 in fp32|gpt2|alibi|relative|llama|mistral|qk|experts|gated_experts|mup|head_sizes|wide_heads|qwen|bloom) generate "$1" ;; esac
}

# No more at once than half the processors.
wait_for_room() { while [ "$(jobs -rp | wc -l)" -ge "$((at_once > 1 ? at_once : 1))" ]; do sleep 0.1; done; }
at_once=$(($(nproc) / 2))
while read -r name tolerance settings; do
  case $chosen in "  "|*" $name "*) ;; *) continue ;; esac
  wait_for_room
  # shellcheck disable=SC2086
  { one "$name" "$tolerance" $settings > "$name.said" 2>&1 || echo "$name" >> failed; cat "$name.said"; } &
done < <(cases)
wait
[ ! -e failed ] || { echo "FAILED: $(paste -sd' ' failed)"; exit 1; }
