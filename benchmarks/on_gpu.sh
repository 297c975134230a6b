#!/usr/bin/env bash
# Tests and benchmarks on a machine with a GPU that is had for minutes, where nothing can be built or fetched: one part
# after the other, each no longer than its limit, until the seconds are over. What was found lies in OUT at any time.
# Usage: benchmarks/on_gpu.sh [--build DIR|ARCHIVE] [--device cpu] [--python PYTHON] [--quick] OUT SECONDS PART...
#   PART: features tests memcheck kernels checkpoint profile generate train    ARCHIVE: made by env/gpu_kit.sh    --quick: a trial
# Exit codes: 0; 64 usage; 70 where a part failed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
declare -A limit=([features]=300 [tests]=300 [memcheck]=150 [kernels]=200 [checkpoint]=130 [profile]=90 [generate]=480 [train]=540)
tests=(random_test kernels_test device_test graphs_test decode_test batches_test nccl_test optimizer_test)
build=$here/../build/cuda device=cuda python=python3 quick=() failed=() work=${TMPDIR:-/tmp}/neox-on-gpu-$UID

usage() { sed -n '2,6s/^# //p' "$0"; exit "$1"; }

while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --python) python=$2; shift 2 ;;
    --quick) quick=(--quick); shift ;;
    -h|--help) usage 0 ;;
    -*) echo "there is no option $1" >&2; usage 64 >&2 ;;
    *) break ;;
  esac
done
[ $# -ge 3 ] || usage 64 >&2
out=$(realpath -m "$1") build=$(realpath -m "$build") end=$((SECONDS + $2))
shift 2
for part in "$@"; do [ -n "${limit[$part]-}" ] || { echo "there is no part $part" >&2; usage 64 >&2; }; done
mkdir -p "$out"
log=$out/log.txt
# What runs here is one process, also in a job of several tasks.
unset "${!SLURM_@}" "${!PMI@}" "${!OMPI_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NEOX_{RANK,WORLD_SIZE,LOCAL_RANK,LOCAL_SIZE,MASTER}

say() { printf '%4d s  %s\n' "$SECONDS" "$*" | tee -a "$log"; }

# The files of the suites that say what was measured; their other ones stay behind.
keep() { for file in report.md lines.jsonl results.json; do cp -f "$results/$file" "$out/" 2> /dev/null; done; }

# seconds PART: what it may take.
seconds() {
  local left=$((end - SECONDS - 5))
  echo $((left < limit[$1] ? left : limit[$1]))
}

# least PART: with less it does not begin. A suite keeps 20 s for its end, begins nothing in the last 15, and must start itself.
least() { case $1 in kernels|checkpoint|generate|train) echo 40 ;; *) echo 25 ;; esac; }

# LibTorch and CUDA as that Python has them. Programs find the archive's own libraries beside themselves; Python must not.
find_libraries() {
  local torch; torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])') || return 1
  local dirs=("$torch/lib")
  for dir in "$torch"/../nvidia/*/lib; do [ -d "$dir" ] && dirs+=("$(cd "$dir" && pwd)"); done
  LD_LIBRARY_PATH=$(IFS=:; echo "${dirs[*]}")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH NEOX_TORCH_DIR=$torch
}

unpack() {
  [ -f "$build" ] || return 0
  rm -rf "$work/kit" && mkdir -p "$work/kit"
  "$python" -m tarfile -e "$build" "$work/kit" && build=$work/kit
}

run_tests() {
  local name bad=0 until=$((SECONDS + $(seconds tests))) begin
  for name in "${tests[@]}"; do
    [ $((until - SECONDS)) -gt 5 ] || { say "$name: no time left"; bad=1; continue; }
    begin=$SECONDS
    printf '\n== %s\n' "$name" >> "$out/tests.txt"
    if timeout -k 5 $((until - SECONDS)) "$build/tests/$name" >> "$out/tests.txt" 2>&1; then say "$name passed in $((SECONDS - begin)) s"
    else say "$name FAILED ($?), see tests.txt"; bad=1; fi
  done
  return $bad
}

run_features() {
  NEOX_TEST_DEVICE=$device timeout -k 5 "$(seconds features)" "$here/../tests/gpu_features_test.sh" "$build" > "$out/features.txt" 2>&1
}

# Each tensor gets memory of its own, behind which the next one does not begin.
run_memcheck() {
  [ "$device" = cuda ] || { say "memcheck: not on a CPU"; return 0; }
  PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout -k 5 "$(seconds memcheck)" compute-sanitizer --tool memcheck --error-exitcode 99 \
    "$build/tests/kernels_test" '--gtest_filter=*/cuda_*' > "$out/memcheck.txt" 2>&1
}

run_profile() {
  local shapes=70m,410m,1.4b seq=2048
  [ ${#quick[@]} -eq 0 ] || shapes=tiny seq=64
  timeout -k 5 "$(seconds profile)" "$python" "$here/step_profile.py" --device "$device" --shapes "$shapes" --seq "$seq" \
    --program "$build/bin/neox-train" --budget $(($(seconds profile) - 10)) > "$out/profile.txt" 2>&1
}

# A round of checkpoints, ours and the peer's, is 40 GB to a disk.
run_suite() {
  local rounds=3
  [ "$1" != checkpoint ] || rounds=1
  "$python" "$here/run" "$1" --rounds $rounds --device "$device" --build "$build" --python "$python" --out "$results" --folder "$work" \
    --budget $(($(seconds "$1") - 20)) "${quick[@]}" > "$work/table.txt" 2>> "$log"
}

cd "$here/.." || exit 70
{ unpack && find_libraries; } || { say "no build or no LibTorch"; exit 70; }
# Figures of another build stay apart.
results=$work/results-$(cat "$build"/{bin,libexec,benchmarks}/* 2> /dev/null | sha256sum | cut -c1-12)
mkdir -p "$results"
{ uname -a; nvidia-smi; "$python" --version; } >> "$log" 2>&1
while sleep 5; do keep; done &
keeper=$!
trap 'kill $keeper 2> /dev/null; keep' EXIT
for part in "$@"; do
  [ "$(seconds "$part")" -gt "$(least "$part")" ] || { say "$part: no time left"; failed+=("$part"); continue; }
  say "$part, at most $(seconds "$part") s"
  case $part in
    features|tests|memcheck|profile) "run_$part" ;;
    *) run_suite "$part" ;;
  esac || { failed+=("$part"); say "$part FAILED"; }
  keep
done
[ ${#failed[@]} -eq 0 ] || { say "failed: ${failed[*]}"; exit 70; }
say "all parts passed"
