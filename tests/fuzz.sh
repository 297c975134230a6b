#!/usr/bin/env bash
# Fuzzes the splitter with clang's libFuzzer, under address and undefined-behaviour sanitizers.
# Usage: tests/fuzz.sh DIRECTORY [SECONDS]     default: 600 s; builds there; inputs that fail stay there
# Ends with 77 where clang with libFuzzer is not found (Debian: clang libclang-rt-14-dev).
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
dir=$1 seconds=${2-600}
mkdir -p "$dir/corpus" && cd "$dir"
clang=$(command -v clang++ || command -v clang++-14) || { echo "clang++ is not found"; exit 77; }
flags=(-std=c++20 -O1 -g -I "$repo/lib" -I "$repo/tests" "-fsanitize=address,undefined" -fno-sanitize-recover=all)
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' > probe.cc
"$clang" -fsanitize=fuzzer probe.cc -o probe 2> probe.log || { echo "clang++ has no libFuzzer"; exit 77; }

# compile FILE OPTIONS...
compile() { local file=$1; shift; "$clang" "${flags[@]}" -fsanitize=fuzzer-no-link "$@" -c "$file" -o "$(basename "$file" .cc).o"; }
objects=(bpe_split.o bpe_scan.o bpe_scan_plain.o unicode.o unicode_tables.o fuzz_splitter.o)
case $(uname -m) in
  x86_64)
    compile "$repo/lib/tokenizer/bpe_scan_avx2.cc" -mavx2 -mbmi -mpopcnt
    compile "$repo/lib/tokenizer/bpe_scan_avx512.cc" -mavx512f -mavx512bw -mavx512vl -mavx512vbmi -mavx512vbmi2 -mbmi -mbmi2 -mpopcnt
    compile "$repo/lib/tokenizer/bpe_simd_x86.cc"
    objects+=(bpe_scan_avx2.o bpe_scan_avx512.o bpe_simd_x86.o) ;;
  aarch64)
    compile "$repo/lib/tokenizer/bpe_scan_neon.cc"
    compile "$repo/lib/tokenizer/bpe_simd_arm.cc"
    objects+=(bpe_scan_neon.o bpe_simd_arm.o) ;;
  *)
    compile "$repo/lib/tokenizer/bpe_simd_none.cc"
    objects+=(bpe_simd_none.o) ;;
esac
for name in bpe_split bpe_scan bpe_scan_plain unicode unicode_tables; do compile "$repo/lib/tokenizer/$name.cc"; done
compile "$repo/tests/fuzz_splitter.cc"
"$clang" "${flags[@]}" -fsanitize=fuzzer "${objects[@]}" -o fuzz_splitter
printf '%s\n' "\"'s\"" "\"'re\"" "\"'ve\"" "\"'ll\"" '"  "' '"\xc2\xa0"' '"\xe3\x80\x80"' '"\xe2\x80\x83"' '"\xcc\x81"' > words.dict
./fuzz_splitter -max_total_time="$seconds" -max_len=400 -dict=words.dict -print_final_stats=1 corpus
