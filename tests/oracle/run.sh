#!/usr/bin/env bash
# Runs the comparisons with Python libraries, each on a build; prints "oracle passed|failed: NAME" for each.
# Usage: tests/oracle/run.sh BUILD_DIRECTORY PYTHON      PYTHON has the libraries that env/test.sh --full installs
set -euo pipefail
build=$(cd "$1" && pwd)
python=$2
cd "$(dirname "$0")"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# compare SCRIPT ARGUMENTS...: passes where it ends with 0; its last line is shown, or all of it.
compare() {
  if OMP_NUM_THREADS=1 "$python" "$@" > "$log" 2>&1; then
    tail -n 1 "$log"
    echo "oracle passed: $1"
  else
    tail -n 40 "$log"
    echo "oracle failed: $1"
    failed=1
  fi
}

compare unicode_tables.py --check
compare tokenizer.py --texts 100000
compare tiktoken_ids.py
compare sentencepiece_ids.py
compare bpe_trainer.py --cases 200 --megabytes 200 --entries 52000
compare wiki_tables.py --check
compare wiki.py "$build/tests/wiki_tool"
compare prepare.py "$build/bin/neox-prepare-data"
compare parquet.py "$build/tests/rows_tool"
compare jinja.py "$build/tests/jinja_tool"
compare chat.py "$build/tests/labels_tool"
compare sample_order.py "$build/tests/sample_order_tool" --cases 500 --core
compare dataset_tool.py "$build/bin/neox-data" --cases 140
compare torchfile.py "$build/tests/torchfile_tool"
compare convert.py "$build/bin" "$build/tests/logits_tool"
compare neox_checkpoint.py "$build/bin" "$build/tests/logits_tool"
compare megatron_checkpoint.py "$build/bin" "$build/tests/logits_tool"
compare neox_deepspeed.py "$build/bin"
compare curriculum.py --check
compare batch_ramp_up.py --check
compare serve.py "$build/bin"
compare benchmarks.py "$build"
compare s3.py "$build/bin"
compare tensorboard.py "$build/bin/neox-plot" "$build/tests/plot_test"
compare wandb.py "$build/tests/wandb_file_test"
exit $failed
