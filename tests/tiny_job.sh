#!/bin/sh
# The work of the programs at its smallest, on a system that has nothing but them: tokenize, train three steps,
# generate. Made for /bin/sh; ends with 0 and a last line "tiny job done".
# Usage: tiny_job.sh DIRECTORY_OF_PROGRAMS WORK_DIRECTORY
set -eu
bin=$1
work=$2
export OMP_NUM_THREADS=1
mkdir -p "$work"
cd "$work"

line=0
while [ $line -lt 400 ]; do
  echo "Line $line: the quick brown fox jumps over $line lazy dogs, and number $((line * 7919 % 1000)) sleeps."
  if [ $((line % 5)) = 4 ]; then echo %; fi
  line=$((line + 1))
done > text

"$bin/neox-prepare-data" --input text --output-prefix data --tokenizer-type HFTokenizer --vocab-file tokenizer.json \
  --train-tokenizer 300 --split-on % --append-eod --workers 1 > prepare.log 2>&1 || { cat prepare.log; exit 1; }

cat > tiny.yml <<YML
num_layers: 2
hidden_size: 32
num_attention_heads: 2
seq_length: 32
max_position_embeddings: 32
pos_emb: rotary
data_path: data_text_document
tokenizer_type: HFTokenizer
vocab_file: tokenizer.json
train_batch_size: 2
train_iters: 3
optimizer: {type: Adam, params: {lr: 1.0e-3}}
precision: fp32
log_interval: 1
save: checkpoints
load: checkpoints
checkpoint_factor: 3
log_dir: logs
YML
"$bin/neox-train" tiny.yml > train.log 2>&1 || { cat train.log; exit 1; }
steps=$(grep -c '"step":' logs/metrics.jsonl)
[ "$steps" -ge 3 ] || { echo "$steps steps of 3 in metrics.jsonl"; cat train.log; exit 1; }
"$bin/neox-generate" checkpoints --prompt "The quick" --max-tokens 8 --seed 1 > generate.log 2>&1 || { cat generate.log; exit 1; }
grep -q "The quick" generate.log || { echo "no text:"; cat generate.log; exit 1; }
echo "tiny job done"
