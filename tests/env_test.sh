#!/usr/bin/env bash
# The scripts of env/ say what is wrong and end with the documented code: run on a copy of the tree's scripts, with
# stand-ins for the distribution's tools in PATH.
# Usage: env_test.sh TREE
set -uo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
tree="$here/a tree"; bin=$here/bin; failed=0 cmake=$(command -v cmake)
mkdir -p "$tree" "$bin"
cp -r "$1/env" "$tree/"
unset NEOX_TORCH_DIR XDG_DATA_HOME CUDACXX NEOX_OS_RELEASE
export HOME=$here/home PATH=$bin:/usr/bin:/bin
mkdir -p "$HOME"

# stand_in NAME BODY: a program of that name before the system's.
stand_in() { printf '#!/bin/bash\n%s\n' "$2" > "$bin/$1"; chmod +x "$bin/$1"; }
# expect CODE TEXT COMMAND...: ends with the code and prints the text (a regular expression).
expect() {
  local code=$1 text=$2 out got; shift 2
  out=$("$@" 2>&1 < /dev/null); got=$?
  if [ $got != "$code" ] || ! grep -qE -- "$text" <<< "$out"; then
    echo "FAILED: $* ended with $got, not $code, or did not print '$text' but:"; printf '%s\n' "$out" | head -n 12; failed=1
  fi
}
all_installed='for p in "${@:4}"; do echo "$p installed"; done'
wheel() {  # wheel DIR VERSION
  mkdir -p "$1/lib" "$1/include/ATen"; touch "$1/lib/libtorch_cpu.so"; echo "__version__ = '$2+cu130'" > "$1/version.py"
}
wheel_file() {  # wheel_file NAME VERSION FILE...: in $here/wheels, as pip installs it; its files stay in $here/NAME.files
  local of=$here/$1.files info=$here/$1.files/$1-$2.dist-info file
  rm -rf "$of"; mkdir -p "$here/wheels" "$info"
  printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$1" "$2" > "$info/METADATA"
  printf 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > "$info/WHEEL"
  touch "$info/RECORD"
  for file in "${@:3}"; do mkdir -p "$(dirname "$of/$file")"; touch "$of/$file"; done
  (cd "$of" && python3 -m zipfile -c "$here/wheels/$1-$2-py3-none-any.whl" ./*)
}
# room MB: that much is free, whatever this disk has.
room() { stand_in df "echo; echo 'fs 1 1 $1 1 /'"; }
os() { printf 'ID=%s\nVERSION_ID="%s"\n' "$1" "$2" > "$here/os-release"; export NEOX_OS_RELEASE=$here/os-release; }

room 99999
setup=$tree/env/setup.sh
stand_in nvcc 'exit 0'
os debian 12
expect 0 'Usage: env/setup.sh' "$setup" --help
expect 64 'unknown argument --frob' "$setup" --frob
expect 64 'needs a directory' "$setup" --prefix

# Packages: only the missing ones; the administrator's command without root and sudo; other distributions.
stand_in dpkg-query 'for p in "${@:4}"; do [ "$p" = cmake ] || [ "$p" = fortunes ] || echo "$p installed"; done'
stand_in id 'echo 1000'
stand_in sudo 'exit 1'
expect 74 '^  apt-get update && apt-get install -y --no-install-recommends cmake fortunes$' "$setup"
os fedora 41
expect 64 'Debian 12 and 13, and Ubuntu 24.04; this is fedora 41' "$setup"
for release in 'ubuntu 24.04' 'debian 13'; do
  os "${release% *}" "${release#* }"
  expect 74 '^  apt-get update && apt-get install' "$setup"
done
os debian 12
stand_in sudo '[ "$1" = -n ] || exec env -i PATH="$PATH" "$@"'
stand_in apt-get 'case "$*" in *install*) echo "through $http_proxy, not for $no_proxy"; exit 100 ;; esac'
expect 74 'through http://a:1, not for b' env http_proxy=http://a:1 no_proxy=b "$setup"
stand_in id 'echo 0'
stand_in apt-get 'case "$*" in *update*) exit 100 ;; esac'
expect 74 'apt-get update failed; is there a network' "$setup"
stand_in apt-get 'case "$*" in
  *--assume-no*) echo "Need to get 9 MB of archives."; echo "After this operation, 900 GB of additional disk space will be used." ;; esac'
expect 74 'installing the packages needs 900... MB in /usr, where' "$setup"
stand_in apt-get 'case "$*" in *--assume-no*) echo "Need to get 9 MB of archives." ;; *install*) echo "E: broken"; exit 100 ;; esac'
expect 74 'Need to get 9 MB' "$setup"
expect 74 'E: broken' "$setup"

# LibTorch: what is named must be right; room; a failing pip; nothing half-made is taken for whole.
stand_in dpkg-query "$all_installed"
wheel "$here/torch" 2.10.0
expect 64 'holds torch 2.10.0; neox.cpp is built with 2.11.0' env NEOX_TORCH_DIR="$here/torch" "$setup"
expect 64 'lacks lib/libtorch_cpu.so' env NEOX_TORCH_DIR="$here" "$setup"
wheel "$here/torch" 2.11.0
expect 0 'Nothing to install' env NEOX_TORCH_DIR="$here/torch" "$setup"
expect 0 'no pyarrow, so Parquet and Arrow files will not be read' env NEOX_TORCH_DIR="$here/torch" "$setup"
room 300
expect 74 'with its download, needs [0-9]+ MB in .*, where 300 MB are free' "$setup"
stand_in flock 'echo "flock: 9: Function not implemented" >&2; exit 71'
expect 74 '^Cannot lock .*/lock: run no other set-up' "$setup"
expect 74 'with its download, needs' "$setup"  # it goes on
stand_in flock '[ "$1" != -n ]'
expect 74 '^Waiting for another set-up that works in' "$setup"
rm "$bin/flock"; room 99999
expect 74 'pip could not install torch 2.11.0 and pyarrow 26.0.1' env PIP_NO_INDEX=1 PIP_FIND_LINKS= "$setup" --prefix "$here/a place"
expect 74 '' "$tree/env/torch_dir.sh"
place="$here/a place/torch-2.11.0"
wheel "$place/lib/python3.99/site-packages/torch" 2.11.0
expect 74 'pip could not install torch 2.11.0 and pyarrow 26.0.1' env PIP_NO_INDEX=1 PIP_FIND_LINKS= "$setup"  # no file `set`: half-made
wheel "$place/lib/python3.99/site-packages/torch" 2.11.0
echo full > "$place/set"
expect 74 'Arrow 26.0.1: about [0-9]+ MB to download' "$setup"  # of an earlier set-up; this one has no pip
mkdir "$place/lib/python3.99/site-packages/pyarrow-26.0.1.dist-info"
expect 0 'Nothing to install: .*/a place/torch-2.11.0/lib/python3.99/site-packages/torch' "$setup"
expect 0 '' "$setup" --quiet
# What other environments have, or pip installs elsewhere, is not there.
no_index=(PIP_NO_INDEX=1 PIP_FIND_LINKS="$here/wheels" PYTHONPATH="$here/torch.files:$here/pyarrow.files" PIP_TARGET="$here/target")
wheel_file torch 2.11.0
wheel_file pyarrow 26.0.1
expect 74 'has no torch/lib/libtorch_cpu.so' env "${no_index[@]}" "$setup" --prefix "$here/new"
wheel_file torch 2.11.0 torch/lib/libtorch_cpu.so
expect 0 'Set-up done' env "${no_index[@]}" "$setup"
expect 0 '/new/torch-2.11.0/lib/python3[.0-9]*/site-packages/torch$' "$tree/env/torch_dir.sh"

# CMake is not led to the libraries of a conda environment that is active, unless they are to come from elsewhere.
stand_in cmake 'if [ "$1" = --build ]; then echo "PATH is $PATH"; fi'
mkdir -p "$here/conda/bin" "$here/conda/conda-meta"
expect 0 "^PATH is $bin:/usr/bin:/bin$" env PATH="$here/conda/bin:$PATH" "$tree/env/build.sh"
touch "$tree/.deps/no-packages"
expect 0 "^PATH is $here/conda/bin:$bin:" env PATH="$here/conda/bin:$PATH" "$tree/env/build.sh"
# As many compilers run as the memory allows that a container or a Slurm job has.
stand_in nproc 'echo 64'
stand_in cat 'case $1 in */memory.max | */memory.limit_in_bytes) echo 3000000000 ;; *) exec /bin/cat "$@" ;; esac'
stand_in sed 'case $* in */proc/meminfo) echo 64000000 ;; *) exec /bin/sed "$@" ;; esac'
expect 0 '^Building build/release with 2 jobs$' "$tree/env/build.sh"
stand_in cat 'case $1 in */memory.max) echo max ;; */memory.limit_in_bytes) echo 9223372036854771712 ;; *) exec /bin/cat "$@" ;; esac'
expect 0 '^Building build/release with 53 jobs$' "$tree/env/build.sh"
rm "$tree/.deps/no-packages" "$bin"/{cmake,nproc,cat,sed}

expect 64 'no preset fast' "$tree/env/build.sh" fast
expect 64 'needs the CUDA compiler nvcc' env CUDACXX=/nowhere "$tree/env/build.sh" cuda
expect 64 'unknown argument --ful' "$tree/env/test.sh" --ful

# CMake leaves ccache out where that cannot write.
mkdir "$here/small"
echo 'int small;' > "$here/small/small.cc"
cat > "$here/small/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
list(PREPEND CMAKE_MODULE_PATH "$1/cmake")
include(Neox)
message(STATUS "begins with \${CMAKE_CXX_COMPILER_LAUNCHER}")
add_library(small small.cc)
CMAKE
stand_in ccache 'mkdir -p "$HOME/.cache/ccache" && exec "$@"'
expect 0 'begins with .*/ccache$' cmake -G Ninja -S "$here/small" -B "$here/with"
expect 0 '^-- Without ccache: mkdir: ' env HOME="$here/os-release" cmake -G Ninja -S "$here/small" -B "$here/without"
expect 0 '' env HOME="$here/os-release" cmake --build "$here/without"

# The archive for a machine with a GPU holds all libraries, or is not made.
stand_in strip ''
stand_in ldd 'echo "liba.so => not found"; echo "libb.so => /lib/libb.so (0x1)"'
mkdir -p "$here/build/bin"
cp "$bin/ldd" "$here/build/bin/neox-prepare-data"
expect 74 'bin/neox-prepare-data lacks libraries:$' "$tree/env/gpu_kit.sh" "$here/build"
expect 74 'liba.so => not found$' "$tree/env/gpu_kit.sh" "$here/build"

# Where CUDA's oldest architecture is one that newer GPUs would take, there must be a newer one that they take.
printf '%s\n' 'function(enable_language)' 'endfunction()' "include(\"$(cd "$1" && pwd)/cmake/Cuda.cmake\")" > "$here/cuda.cmake"
for refused in '80' '80;90-real' '80;90a' '75;120f'; do expect 1 'write 80-real' "$cmake" -DCMAKE_CUDA_ARCHITECTURES="$refused" -P "$here/cuda.cmake"; done
for taken in '80;90' '75;120-virtual' '80-real;90a'; do expect 0 '' "$cmake" -DCMAKE_CUDA_ARCHITECTURES="$taken" -P "$here/cuda.cmake"; done

# The summary of tests: gtest's cases count, a crash is a failure, what is skipped is named with its reason.
cat > "$here/release.ctest.log" <<'LOG'
1/5 Test #1: box_test ...................   Passed    0.05 sec
2/5 Test #2: base.includes ..............   Passed    0.05 sec
3/5 Test #3: bad_test ...................***Failed    0.05 sec
4/5 Test #4: crash_test .................***Exception: SegFault  0.05 sec
5/5 Test #5: shellcheck_test ............***Skipped   0.00 sec
LOG
cat > "$here/release.cases.log" <<'LOG'
1/5 Testing: box_test
[       OK ] Box.Intersects (0 ms)
/src/box_test.cc:3: Skipped
needs 20B_tokenizer.json

[  SKIPPED ] Box.Real (0 ms)
[  SKIPPED ] Box.Real
3/5 Testing: bad_test
[  FAILED  ] Bad.Case/1, where GetParam() = 3 (2 ms)
[  FAILED  ] Bad.Case/1, where GetParam() = 3
4/5 Testing: crash_test
[       OK ] Crash.First (1 ms)
LOG
printf 'oracle passed: a.py\noracle failed: b.py\n' > "$here/oracle.log"
summary=(awk -f "$1/tests/summary.awk" "$here/release.ctest.log" "$here/release.cases.log" "$here/oracle.log")
expect 1 '^4 passed, 3 failed, 2 skipped$' "${summary[@]}"
expect 1 'skipped: release box_test Box.Real \(needs 20B_tokenizer.json\)' "${summary[@]}"
expect 1 'failed: release crash_test \(Exception: SegFault\)' "${summary[@]}"
expect 1 'failed: release bad_test Bad.Case/1' "${summary[@]}"
sed -i '/bad_test\|crash_test/d' "$here/release.ctest.log"
sed -i '/Bad.Case/d' "$here/release.cases.log"
expect 0 '^3 passed, 0 failed, 2 skipped$' "${summary[@]:0:5}"
expect 1 '^0 passed, 0 failed, 0 skipped$' awk -f "$1/tests/summary.awk" /dev/null
exit $failed
