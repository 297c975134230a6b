#!/usr/bin/env bash
# Fuzzes readers of what comes from outside with clang's libFuzzer, under address and undefined-behaviour sanitizers.
# Usage: tests/fuzz.sh DIRECTORY [SECONDS] [READER...]
#   default: 600 s for each reader; all of them, which are the files tests/fuzz_*.cc
# Builds in DIRECTORY/build. DIRECTORY/READER/corpus has the inputs that differ, from which the next run goes on; beside it
# stay those that fail, take more than 10 s, or more than 2 GB.
# Ends with 77 where clang with libFuzzer is not found (Debian: clang libclang-rt-14-dev).
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
dir=$1 seconds=${2-600}
shift $(($# < 2 ? $# : 2))
readers=("$@")
if [ $# = 0 ]; then
  for file in "$repo"/tests/fuzz_*.cc; do file=${file##*/fuzz_}; readers+=("${file%.cc}"); done
fi
mkdir -p "$dir" && cd "$dir"
clang=$(command -v clang++ || command -v clang++-14) || { echo "clang++ is not found"; exit 77; }
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' > probe.cc
"$clang" -fsanitize=fuzzer probe.cc -o probe 2> probe.log || { echo "clang++ has no libFuzzer"; exit 77; }

if [ ! -e build/build.ninja ]; then
  NEOX_TORCH_DIR=$("$repo/env/torch_dir.sh") cmake -S "$repo" -B build -G Ninja -DCMAKE_CXX_COMPILER="$clang" \
    -DCMAKE_BUILD_TYPE=Checked -DNEOX_SANITIZE=address,undefined,fuzzer-no-link > build.log 2>&1 || { cat build.log; exit 70; }
fi
cmake --build build --target "${readers[@]/#/fuzz_}"

for reader in "${readers[@]}"; do
  mkdir -p "$reader/corpus"
  python3 "$repo/tests/fuzz_seeds.py" "$reader" "$reader/corpus"
  # Words that inputs are made of stand in the harness.
  sed -n 's|^// Words: ||p' "$repo/tests/fuzz_$reader.cc" | grep -oE '"(\\.|[^"\\])*"' > "$reader/words.dict"
  echo "Fuzzing $reader"
  (cd "$reader" && "../build/tests/fuzz_$reader" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -dict=words.dict \
    -print_final_stats=1 corpus)
done
