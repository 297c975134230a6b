#!/usr/bin/env bash
# Training in bf16 goes as in fp32: Pythia-14M on real text, 200 steps of 2048 tokens, and the last losses differ by less than 1 %.
# Usage: precision_test.sh SOURCE_DIRECTORY BUILD_DIRECTORY
set -euo pipefail
source=$(cd "$1" && pwd) bin=$(cd "$2" && pwd)/bin
data=${NEOX_TEST_DATA-}
[ -n "$data" ] || { echo "skipped: NEOX_TEST_DATA is not set"; exit 77; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"

"$bin/neox-prepare-data" --input "$data/wikitext2_valid.txt" "$data/tinyshakespeare.txt" --output-prefix text \
  --vocab-file "$data/20B_tokenizer.json" > prepare.log 2>&1 || { cat prepare.log; exit 1; }
options=()
for setting in data_path=text_text_document "vocab_file=$data/20B_tokenizer.json" split=1,0,0 train_iters=200 lr_decay_iters=200 train_batch_size=1 \
  train_micro_batch_size_per_gpu=1 gradient_accumulation_steps=1 log_interval=10 eval_iters=0 fp16=null; do
  options+=(--set "$setting")
done

# The mean of the last 20 steps' losses.
loss_of() {
  "$bin/neox-train" "$source/configs/pythia/14M.yml" "${options[@]}" --set precision="$1" --set log_dir="$1" > "$1.log" 2>&1 ||
    { tail -n 20 "$1.log" >&2; exit 1; }
  python3 - "$1/metrics.jsonl" << 'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
losses = [x["train/lm_loss"] for x in lines if x["step"] > 180 and "train/lm_loss" in x]
assert losses, "no losses"
print(sum(losses) / len(losses))
END
}
fp32=$(loss_of fp32)
bf16=$(loss_of bfloat16)
echo "loss in fp32 $fp32, in bf16 $bf16"
awk -v a="$fp32" -v b="$bf16" 'BEGIN { d = (b - a) / a; exit !(a > 0 && a < 8 && d < 0.01 && d > -0.01) }' ||
  { echo "FAILED: they differ by 1 % or more, or the model learnt nothing"; exit 1; }
