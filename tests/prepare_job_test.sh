#!/usr/bin/env bash
# Processes that meet as the tasks of a job write the files that one process writes.
# Usage: prepare_job_test.sh BUILD_DIRECTORY
set -euo pipefail
build=$(cd "$1" && pwd)
program=$build/bin/neox-prepare-data
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
fail() { echo "FAILED: $1"; tail -n 20 log.*; exit 1; }

# in_job N PORT ARGUMENT...: N ranks; the codes they end with are in `codes`.
in_job() {
  local ranks=$1 port=$2 rank pids=() code
  shift 2
  for ((rank = 0; rank < ranks; ++rank)); do
    NEOX_RANK=$rank NEOX_WORLD_SIZE=$ranks NEOX_LOCAL_RANK=$rank NEOX_LOCAL_SIZE=$ranks NEOX_MASTER=127.0.0.1:$port \
      "$program" "$@" > "log.$rank" 2>&1 &
    pids+=($!)
  done
  codes=""
  for rank in "${pids[@]}"; do
    code=0
    wait "$rank" || code=$?
    codes+="$code "
  done
}

for ((i = 0; i < 5000; ++i)); do echo "{\"text\": \"the cat $i and the hat of $((i * 7919 % 1000))\"}"; done > in.jsonl
"$program" --input in.jsonl --output-prefix one --vocab-file tokenizer.json --train-tokenizer 300 > log.one 2>&1 ||
  fail "one process"
port=$((20000 + $$ % 10000))
in_job 3 $port --input in.jsonl --output-prefix many --vocab-file tokenizer.json
[ "$codes" = "0 0 0 " ] || fail "three ranks ended with $codes"
for ending in bin idx; do
  cmp "one_text_document.$ending" "many_text_document.$ending" || fail "three ranks wrote another .$ending"
done
grep -q "data_path: many_text_document" log.0 || fail "rank 0 has no summary"
! grep -q "data_path" log.1 || fail "rank 1 has a summary too"

# As nodes with NFS, on which pages that hold bytes of two ranks are written back whole.
ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=$build/tests/libnfs_preload.so \
  in_job 4 $((port + 3)) --input in.jsonl --output-prefix many --vocab-file tokenizer.json
[ "$codes" = "0 0 0 0 " ] || fail "four ranks on NFS ended with $codes"
for ending in bin idx; do
  cmp "one_text_document.$ending" "many_text_document.$ending" || fail "four ranks on NFS wrote another .$ending"
done

# The same documents in one JSON array.
{ echo "["; sed '$!s/$/,/' in.jsonl; echo "]"; } > in.json
in_job 3 $((port + 4)) --input in.json --output-prefix many --vocab-file tokenizer.json
[ "$codes" = "0 0 0 " ] || fail "of an array three ranks ended with $codes"
for ending in bin idx; do
  cmp "one_text_document.$ending" "many_text_document.$ending" || fail "of an array three ranks wrote another .$ending"
done

NEOX_RANK=0 NEOX_WORLD_SIZE=2 NEOX_LOCAL_RANK=0 NEOX_LOCAL_SIZE=2 NEOX_MASTER=127.0.0.1:$((port + 2)) NEOX_ARRIVAL_SECONDS=1 \
  "$program" --input in.jsonl --output-prefix many --vocab-file tokenizer.json > log.0 2>&1 && fail "half of a job did not fail"
grep -q 'rank 1 .*did not arrive within 1 s' log.0 || fail "who is missing is not said"

echo bad >> in.jsonl
rm many_text_document.*
in_job 2 $((port + 1)) --input in.jsonl --output-prefix many --vocab-file tokenizer.json
[ "$codes" = "74 74 " ] || fail "with a bad line two ranks ended with $codes"
grep -q "in.jsonl:5001: not valid JSON" log.0 || fail "rank 0 does not name the line"
! compgen -G 'many*' > /dev/null || fail "files are left: $(echo many*)"
