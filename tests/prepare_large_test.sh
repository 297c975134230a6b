#!/usr/bin/env bash
# Memory does not grow with the input, on no rank, and a large run that is killed goes on where it was.
# Usage: prepare_large_test.sh BUILD_DIRECTORY MEGABYTES [SECONDS_UNTIL_KILLED]
set -euo pipefail
program=$(cd "$1" && pwd)/bin/neox-prepare-data
pieces=$(($2 / 10)) seconds=${3:-}
temp=$(mktemp -d)
pids=()
stop() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2> /dev/null || true; done
  rm -rf "$temp"
}
trap stop EXIT
cd "$temp"
fail() { echo "FAILED: $1"; tail -n 20 log.*; exit 1; }

# 10 MB of documents of all sizes; the input is many of them.
awk 'BEGIN {
  srand(5)
  while (bytes < 10e6) {
    text = ""
    words = int(exp(rand() * 8))
    for (w = 0; w < words; ++w) text = text sprintf(" %c%c%d", 97 + rand() * 26, 97 + rand() * 26, rand() * rand() * 1000)
    line = "{\"text\": \"" text "\"}"
    print line
    bytes += length(line) + 1
  }
}' > piece.jsonl
"$program" --input piece.jsonl --output-prefix piece --vocab-file tokenizer.json --train-tokenizer 2000 > log.piece 2>&1 ||
  fail "the piece"
for ((i = 0; i < pieces; ++i)); do cat piece.jsonl; done > in.jsonl

# Starts two ranks that meet at a port; their process ids are in `pids`.
start() {
  local rank
  pids=()
  for rank in 0 1; do
    NEOX_RANK=$rank NEOX_WORLD_SIZE=2 NEOX_LOCAL_RANK=$rank NEOX_LOCAL_SIZE=2 NEOX_MASTER=127.0.0.1:$1 \
      "$program" --input in.jsonl --output-prefix out --vocab-file tokenizer.json --workers 1 > "log.$rank" 2>&1 &
    pids+=($!)
  done
}
port=$((20000 + $$ % 10000))
if [[ $seconds ]]; then
  start $port
  sleep "$seconds"
  kill -9 "${pids[@]}" || fail "done before it could be killed"
  wait "${pids[@]}" || true
fi
start $((port + 1))
peak=0
while kill -0 "${pids[0]}" 2> /dev/null || kill -0 "${pids[1]}" 2> /dev/null; do
  for pid in "${pids[@]}"; do
    now=$(awk '/VmHWM/ { print $2 }' "/proc/$pid/status" 2> /dev/null || true)
    ((${now:-0} <= peak)) || peak=$now
  done
  sleep 0.1
done
for pid in "${pids[@]}"; do wait "$pid" || fail "a rank ended with $?"; done
pids=()
echo "peak memory of a rank: $((peak / 1024)) MB"
((peak > 0 && peak < 500000)) || fail "$peak KB of memory"
if [[ $seconds ]]; then grep "goes on where a run was interrupted" log.0 || fail "it began afresh"; fi

for ((i = 0; i < pieces; ++i)); do cat piece_text_document.bin; done | cmp - out_text_document.bin || fail "another .bin"
documents=$(wc -l < piece.jsonl)
lengths() { head -c $((34 + 4 * documents * $2)) "$1_text_document.idx" | tail -c +35; }
for ((i = 0; i < pieces; ++i)); do lengths piece 1; done | cmp - <(lengths out "$pieces") || fail "other lengths"
[[ $(stat -c %s out_text_document.idx) == $((34 + 20 * documents * pieces + 8)) ]] || fail "the size of .idx"
! compgen -G '*.tmp-*' > /dev/null || fail "files are left: $(echo *.tmp-*)"
