#!/usr/bin/env bash
# A bundle is small, needs no symbol newer than glibc 2.34 and libstdc++ of GCC 11 have, brings every library that is
# not of the system, LibTorch, Arrow or MPI, holds no path of the machine that made it, and its programs say how to get
# LibTorch where they cannot find it.
# Usage: bundle_test.sh BUILD_DIRECTORY      (build/release or build/cuda)
set -euo pipefail
build=$(cd "$1" && pwd)
repo=$(cd "$(dirname "$0")/.." && pwd)
preset=$(basename "$build")
case $preset in release|cuda) ;; *) echo "no bundle is made of the preset $preset"; exit 77 ;; esac
command -v patchelf > /dev/null || { echo "patchelf is not installed"; exit 77; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
fail() { echo "FAILED: $1"; shift; [ $# = 0 ] || printf '%s\n' "$@" | head -n 20; exit 1; }

NEOX_TORCH_DIR=$(sed -n 's/^LibTorch_ROOT:PATH=//p' "$build/CMakeCache.txt")
export NEOX_TORCH_DIR
"$repo/env/bundle.sh" "$preset" "$temp" > "$temp/log" 2>&1 || fail "env/bundle.sh" "$(tail -n 20 "$temp/log")"
archive=$(echo "$temp"/neox-*.tar.gz)
[ "$(stat -c %s "$archive")" -le $((64 << 20)) ] || fail "$archive is larger than 64 MiB"
mkdir "$temp/an other"
tar xf "$archive" -C "$temp/an other"
tree=$(echo "$temp/an other"/neox-*)
version=$(sed -n 's/.*kVersion = "\(.*\)".*/\1/p' "$repo/lib/base/version.h")
[[ $(basename "$tree") == neox-$version-linux-* ]] || fail "the archive holds $(basename "$tree")"

mapfile -d '' -t files < <(find "$tree" -type f -print0 | while IFS= read -r -d '' f; do
  if [ "$(head -c 4 "$f" | tail -c 3)" = ELF ]; then printf '%s\0' "$f"; fi; done)
[ ${#files[@]} -ge 8 ] || fail "${#files[@]} programs and libraries in the bundle"

# no_newer PREFIX LIMIT FILE: what the file's undefined symbols in $symbols ask for.
no_newer() {
  local found
  found=$(grep -oE "\($1_[0-9.]+\)" <<< "$symbols" | grep -oE '[0-9][0-9.]*' | sort -V | tail -n 1 || true)
  [ "$(printf '%s\n' "$2" "$found" | sort -V | tail -n 1)" = "$2" ] ||
    fail "${3#"$tree/"} needs $1_$found, newer than $2:" "$(grep -F "($1_$found)" <<< "$symbols")"
}
# Those of Debian 12 run there; those of a later system say what they need.
libc=$(getconf GNU_LIBC_VERSION) needs=$(sed -n 's/.*for systems with glibc \([0-9.]*\) or later$/\1/p' "$temp/log") limit=2.34
[ -n "$needs" ] || fail "env/bundle.sh does not say which glibc the bundle needs" "$(tail -n 3 "$temp/log")"
if [ "$(printf '%s\n' 2.36 "${libc##* }" | sort -V | tail -n 1)" != 2.36 ]; then limit=$needs; fi
[ "$needs" = "$limit" ] || fail "the bundle needs glibc $needs, not $limit"
for file in "${files[@]}"; do
  symbols=$(objdump -T "$file" | grep -F '*UND*' || true)
  no_newer GLIBC "$limit" "$file"
  [ "$limit" = 2.34 ] || continue
  no_newer GLIBCXX 3.4.29 "$file"
  no_newer CXXABI 1.3.13 "$file"
done

# What is needed is in lib/, or of the C and C++ run time, LibTorch, the driver's or a site's MPI.
outside='^(ld-linux.*|lib(c|m|dl|rt|util|pthread|resolv|anl|stdc\+\+|gcc_s|gomp)\.so.*|lib(torch|c10)[a-z_]*\.so|lib(cudart|nccl)\.so.*)$'
for file in "${files[@]}"; do
  mapfile -t needed < <(patchelf --print-needed "$file" | grep -vE "$outside" || true)
  for library in "${needed[@]}"; do
    case ${file#"$tree/"}:$library in lib/neox/*:libmpi.so*|lib/neox/*:libpmix.so*|lib/neox/*:libarrow*.so*|lib/neox/*:libparquet.so*) continue ;; esac
    [ -e "$tree/lib/$library" ] || fail "${file#"$tree/"} needs $library, which is not in lib/"
  done
  case $(patchelf --print-rpath "$file") in
    ""|'$ORIGIN/../lib'|'$ORIGIN/..') ;;
    *) fail "${file#"$tree/"} has the RPATH $(patchelf --print-rpath "$file")" ;;
  esac
done
if find "$tree/lib" -name 'libmpi*' -o -name 'libtorch*' -o -name 'libpmix*' -o -name 'libarrow*' | grep .; then fail "the bundle drags these in"; fi
if grep -rlF "$build" "$tree"; then fail "these files name the build directory"; fi

for file in share/neox/configs/quickstart.yml share/doc/neox/README.md share/doc/neox/third-party-licences.txt; do
  [ -s "$tree/$file" ] || fail "$file is missing"
done

# Without LibTorch: exit code 64 and what to do; programs that need none just run.
# expect CODE TEXT COMMAND...
expect() {
  local code=$1 text=$2 out got=0; shift 2
  out=$("$@" 2>&1) || got=$?
  [ $got = "$code" ] && grep -qF -- "$text" <<< "$out" || fail "$* ended with $got and printed" "$out"
}
expect 0 "neox-plot (neox.cpp) $version" env -u NEOX_TORCH_DIR "$tree/bin/neox-plot" --version
expect 64 'NEOX_TORCH_DIR does not say where it is' env -u NEOX_TORCH_DIR "$tree/bin/neox-train" --version
expect 64 'pip install --target DIR --python-version 3.12 --only-binary=:all: torch==2.11.0' env -u NEOX_TORCH_DIR "$tree/bin/neox-train" --version
expect 64 'NEOX_TORCH_DIR=/nowhere has no torch/lib/libtorch_cpu.so' env NEOX_TORCH_DIR=/nowhere "$tree/bin/neox-train" --version
mkdir -p "$temp/old/torch/lib"
touch "$temp/old/torch/lib/libtorch_cpu.so"
echo "__version__ = '2.10.0+cu128'" > "$temp/old/torch/version.py"
expect 64 'holds torch 2.10.0; this program is built with 2.11.0' env NEOX_TORCH_DIR="$temp/old" "$tree/bin/neox-train" --version
mkdir "$temp/half"
ln -s "$NEOX_TORCH_DIR" "$temp/half/torch"
expect 64 'lacks nvidia, which comes with' env NEOX_TORCH_DIR="$temp/half" "$tree/bin/neox-train" --version

# With it: named as a site-packages directory, as torch in it, relative, or by a link `site`; started through links.
site=$(dirname "$NEOX_TORCH_DIR")
expect 0 "neox-train (neox.cpp) $version" env NEOX_TORCH_DIR="$site" "$tree/bin/neox-train" --version
expect 0 "neox-train (neox.cpp) $version" env NEOX_TORCH_DIR="$site/torch" "$tree/bin/neox-train" --version
cd "$site/.."
expect 0 "neox-train (neox.cpp) $version" env NEOX_TORCH_DIR="$(basename "$site")" "$tree/bin/neox-train" --version
cd /
mkdir "$temp/links"
ln -s "../an other/$(basename "$tree")/bin/neox-train" "$temp/links/train"
ln -s "$temp/links/train" "$temp/links/again"
expect 0 "neox-train (neox.cpp) $version" env NEOX_TORCH_DIR="$site" PATH="$temp/links:$PATH" again --version
ln -s "$site" "$tree/site"
expect 0 "neox-train (neox.cpp) $version" env -u NEOX_TORCH_DIR "$tree/bin/neox-train" --version
rm "$tree/site"

# A LibTorch elsewhere in LD_LIBRARY_PATH does not come first.
mkdir "$temp/other"
touch "$temp/other/libtorch_cpu.so"
expect 0 "neox-train (neox.cpp) $version" env NEOX_TORCH_DIR="$site" LD_LIBRARY_PATH="$temp/other" "$tree/bin/neox-train" --version
"$repo/tests/tiny_job.sh" "$tree/bin" "$temp/job" || fail "the tiny job"
