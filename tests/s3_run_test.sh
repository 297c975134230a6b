#!/usr/bin/env bash
# Runs whose checkpoints are copied to S3, and that go on from there, against a server that stands in for it.
# Usage: s3_run_test.sh BUILD_DIRECTORY
set -euo pipefail
build=$(cd "$1" && pwd) here=$(cd "$(dirname "$0")" && pwd)
[ -e "$build/lib/neox/libneox_s3.so" ] || { echo "this build has no plugin for S3"; exit 77; }
temp=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2> /dev/null; rm -rf "$temp"' EXIT
cd "$temp"
fail() { echo "FAILED: $1"; tail -n 20 run.log; exit 1; }

export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_EC2_METADATA_DISABLED=true OMP_NUM_THREADS=1
# serve DIRECTORY [DELAY]: AWS_ENDPOINT_URL names it from then on.
serve() {
  mkdir -p "$1/bucket"
  exec 9< <(exec "$here/s3_stand_in.py" "$@")
  servers+=($!)
  read -r -u 9 AWS_ENDPOINT_URL
  export AWS_ENDPOINT_URL
}
# train CODE ARGUMENT...: what the run must end with.
train() {
  local code=0 expected=$1
  shift
  timeout 100 "$build/bin/neox-train" tiny.yml "$@" > run.log 2>&1 || code=$?
  [ $code = "$expected" ] || fail "the run ended with $code, not $expected"
}
said() { grep -q -- "$1" run.log || fail "the log lacks: $1"; }
# holds DIRECTORY NAME...: these and no others.
holds() {
  local found
  found=$(cd "$1" && echo *)
  [ "$found" = "${*:2}" ] || fail "$1 holds $found, not ${*:2}"
}
same_files() { diff -r "$1" "$2" > diff.log || fail "$1 and $2 differ: $(cat diff.log)"; }

sh "$here/tiny_job.sh" "$build/bin" "$temp" > job.log
rm -r checkpoints logs
serve s3
sed -i 's/^checkpoint_factor: 3/checkpoint_factor: 1/' tiny.yml
echo "s3_path: s3://bucket/runs" >> tiny.yml

# The newest of each step, the same bytes, also what keep_last_n_checkpoints has dropped here.
train 0 --set keep_last_n_checkpoints=1
said "copied checkpoints/global_step3 to s3://bucket/runs/checkpoints"
holds checkpoints global_step3 latest owner
holds s3/bucket/runs/checkpoints global_step1 global_step2 global_step3 writer.txt
same_files checkpoints/global_step3 s3/bucket/runs/checkpoints/global_step3

# All is lost here: the run goes on from the copy, two ranks and another layout.
rm -r checkpoints
train 0 --spawn 2 --set train_iters=5 --set lr_decay_iters=3
said "fetched global_step3"
said "resuming from checkpoints/global_step3"
same_files checkpoints/global_step5 s3/bucket/runs/checkpoints/global_step5
same_files checkpoints/global_step3 s3/bucket/runs/checkpoints/global_step3

# A step of before is asked for; S3 holds newer ones, which stay.
rm -r checkpoints
train 0 --set iteration=2 --set train_iters=2 --set lr_decay_iters=3
said "fetched global_step2"

# Another run under this name is not mixed with it.
rm -r checkpoints
train 64 --set load=
said "holds global_step5 of an earlier run. To go on from it set load: checkpoints"

# What was not copied is copied by the next start.
train 0 --set s3_path= --set save=other --set load=other
train 0 --set save=other --set load=other
said "copied other/global_step3 to s3://bucket/runs/other"
same_files other/global_step1 s3/bucket/runs/other/global_step1

# A damaged copy is not taken.
rm -r other
echo x >> s3/bucket/runs/other/global_step3/train_state.json
train 74 --set save=other --set load=other
said "cannot fetch global_step3 from s3://bucket/runs/other"
[ -z "$(ls -A other)" ] || fail "a damaged copy leaves $(ls other)"

# A checkpoint that is passed over is neither copied nor taken for what was saved last.
train 0 --set s3_path= --set save=passed --set load=passed --set train_iters=4 --set lr_decay_iters=4 \
  --set checkpoint_factor=2
truncate -s 1000 passed/global_step4/rank_00000.h5
train 0 --set save=passed --set load=passed --set lr_decay_iters=4 --set checkpoint_factor=2 --set keep_last_n_checkpoints=1
said "passed/global_step4/rank_00000.h5 has 1000 bytes"
holds passed global_step3 latest owner
holds s3/bucket/runs/passed global_step2 global_step3 writer.txt

# A bucket that may not be used is an error at once, which says whose.
train 74 --set save=new --set load=new --set s3_path=s3://denied/runs
said "s3_path.*s3://denied/runs/new.*credentials"
[ ! -e new/latest ] || fail "the run began"

# A stop does not wait for a server that is busy for long.
timeout 100 "$build/bin/neox-train" tiny.yml --set save=new --set load=new --set s3_path=s3://busy/runs > run.log 2>&1 &
run=$!
until [ -e s3/busy.asked ]; do sleep 0.1; done
kill -TERM $run
code=0
wait $run || code=$?
[ $code = 75 ] || fail "a run that waits for S3 ended with $code when it was stopped"
said "asked to stop by SIGTERM before S3 had answered"

# A stop does not wait for copies, and the next start makes them.
serve slow 2
timeout 100 "$build/bin/neox-train" tiny.yml --set save=late --set load=late --set train_iters=1000000 > run.log 2>&1 &
run=$!
until grep -q "saved late/global_step3" run.log; do sleep 0.1; done
kill -TERM $run
code=0
wait $run || code=$?
[ $code = 75 ] || fail "a stopped run ended with $code"
said "not in s3://bucket/runs/late yet; the next start of the run goes on copying"

# A server that is gone costs the run no checkpoint.
kill "${servers[-1]}"
train 74 --set save=gone --set load=gone
said "s3://bucket/runs/gone"
echo "checkpoints were copied to S3, fetched and continued from"
