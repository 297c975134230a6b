# Runs the programs on the stand-in for CUDA (tests/cuda_stand_in), in a directory with data, a tokenizer and tiny.yml; to be
# sourced with BUILD_DIRECTORY LIBRARY.
# shellcheck shell=bash disable=SC2034
bin=$(cd "$1" && pwd)/bin library=$(realpath "$2")
unset CUDA_VISIBLE_DEVICES
export OMP_NUM_THREADS=1
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp" || exit 1
failed=0

fail() { echo "FAILED: $*"; failed=1; }

# on_gpu NAME COMMAND...: NAME.out, and NAME.calls, what was asked of the GPU.
on_gpu() {
  local name=$1
  shift
  CUDA_STAND_IN_LOG=$PWD/$name.calls LD_PRELOAD=$library "$@" > "$name.out" 2>&1 || { fail "$name"; tail -n 5 "$name.out"; }
  grep '^refused' "$name.calls" && fail "$name: CUDA refuses that"
  return 0
}

for line in {1..400}; do echo "{\"text\": \"Line $line: the quick brown fox jumps over $((line * 7919 % 1000)) lazy dogs.\"}"; done > text.jsonl
"$bin/neox-prepare-data" --input text.jsonl --output-prefix data --tokenizer-type HFTokenizer --vocab-file tokenizer.json \
  --train-tokenizer 300 --append-eod --workers 1 > prepare.log 2>&1 || { cat prepare.log; exit 1; }
cat > tiny.yml << END
{num_layers: 3, hidden_size: 64, num_attention_heads: 4, seq_length: 64, max_position_embeddings: 64, pos_emb: rotary, rotary_pct: 0.25,
 no_weight_tying: true, gpt_j_residual: true, precision: bfloat16, train_iters: 9, log_interval: 1, train_batch_size: 8,
 train_micro_batch_size_per_gpu: 8, eval_iters: 0, split: "1,0,0", data_path: data_text_document, tokenizer_type: HFTokenizer,
 vocab_file: tokenizer.json, optimizer: {type: Adam, params: {lr: 1.0e-3}}, gradient_clipping: 1.0}
END
