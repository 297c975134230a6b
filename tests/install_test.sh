#!/usr/bin/env bash
# The installed tree is whole and can be moved: its programs run from another place and directory, with the libraries
# of the tree, and find LibTorch through a link `site` where the recorded place is gone. Also: a build without MPI has benchmarks.
# Usage: install_test.sh BUILD_DIRECTORY
set -euo pipefail
build=$(cd "$1" && pwd)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
fail() { echo "FAILED: $1"; shift; printf '%s\n' "$@" | head -n 20; exit 1; }

cmake --install "$build" --prefix "$temp/first" --strip > "$temp/log" 2>&1 || fail "cmake --install" "$(tail -n 20 "$temp/log")"
mkdir "$temp/an other"
mv "$temp/first" "$temp/an other/place"
tree="$temp/an other/place"
cd /

# PROGRAM: its manual page has its summary, and its examples line by line.
check_manual() {
  local name=${1##*/} page summary examples shown
  page="$tree/share/man/man1/$name.1"
  [ -e "$page" ] || fail "no manual page of $name"
  summary=$("$1" --help | sed -n '3s/^.\(.*\)\.$/\1/p')
  grep -q "^$name .- [a-z]$summary$" "$page" ||
    fail "NAME in the manual page of $name is not its summary" "$(sed -n '/^.SH NAME/{n;p}' "$page")"
  command -v groff > /dev/null || return 0
  examples=$("$1" --help | sed -n '/^Examples:/,$s/^  //p')
  shown=$(groff -man -Tascii -P-cbou "$page" | sed -n '/^EXAMPLES/,$s/^       //p')
  [ "$shown" == "$examples" ] || fail "the examples in the manual page of $name are not those of --help" "$shown"
}

# PROGRAM COMMAND OPTION: its manual page explains this option of the command.
check_manual_of_command() {
  sed -n "/^.SS \"$1 $2\"/,/^.S[SH] /p" "$tree/share/man/man1/$1.1" | grep -F "\\fB${3//-/\\-}\\fR" > /dev/null ||
    fail "the manual page of $1 has no $3 of $2"
}

for path in "$tree"/bin/* "$tree"/libexec/*; do
  program=${path##*/}
  version=$("$path" --version) || fail "$path --version ended with $?"
  [[ $version == "$program (neox.cpp) "*", for CPUs" ]] || fail "$path --version prints" "$version"
  [ -e "$tree/share/bash-completion/completions/$program" ] || fail "no completion of $program"
  if command -v help2man > /dev/null; then
    check_manual "$path"
  fi
  loaded=$(ldd "$path")
  ! grep 'not found' <<< "$loaded" || fail "$program lacks libraries" "$loaded"
  # What is not of the C and C++ run time comes out of the tree or of LibTorch's wheel.
  others=$(sed -n 's/.*=> \(.*\) (0x.*/\1/p' <<< "$loaded" | xargs -d '\n' realpath |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|util|pthread|resolv|stdc\+\+|gcc_s|gomp))[.-]' |
    grep -v "^$(realpath "$tree")/lib/" | grep -vE '/torch/lib/|/nvidia/' || true)
  [ -z "$others" ] || fail "$program loads from outside the tree" "$others"
done
if command -v help2man > /dev/null; then
  check_manual_of_command neox-data split --tokens
  check_manual_of_command neox-data import --output-prefix
  check_manual_of_command neox-convert diff --from
fi

# What starts without LibTorch, and says where the rest should be.
for program in neox-train neox-generate neox-prepare-data; do
  [ -e "$tree/libexec/$program" ] || fail "there is no libexec/$program"
  ! ldd "$tree/bin/$program" | grep -E 'libtorch|libc10' || fail "bin/$program loads LibTorch"
done
mkdir "$temp/alone"
cp "$tree/bin/neox-train" "$temp/alone"
code=0
said=$(LD_LIBRARY_PATH="$tree/lib" "$temp/alone/neox-train" none.yml 2>&1) || code=$?
[[ $code == 74 && $said == *"cannot start $temp/libexec/neox-train"*"copy the whole tree"* ]] || fail "bin/neox-train alone ends with $code" "$said"

for library in "$tree"/lib/*.so*; do
  ! readelf -d "$library" | grep RUNPATH || fail "$library has a RUNPATH, which hides the programs' RPATH"
done
for file in share/neox/configs/quickstart.yml share/neox/configs/pythia/70M.yml share/doc/neox/README.md share/doc/neox/LICENSE; do
  [ -e "$tree/$file" ] || fail "$file is not installed"
done
while read -r file; do
  while read -r link; do
    [ -e "$(dirname "$file")/$link" ] || fail "$file links to $link, which is not there"
  done < <(grep -oE '\]\([^)#]+' "$file" | cut -c3- | grep -v ://)
done < <(find "$tree/share/doc/neox" -name '*.md')
"$tree/bin/neox-train" 70M -d "$tree/share/neox/configs/pythia" --explain > /dev/null || fail "the installed configs cannot be read"

# On another machine LibTorch lies elsewhere: nothing but the link `site` leads to it.
torch=$(ldd "$tree/libexec/neox-train" | sed -n 's/.*libtorch_cpu.so => \(.*\) (0x.*/\1/p')
site=${torch%/torch/lib/*}
mkdir "$temp/elsewhere"
ln -s "$site/torch" "$site/nvidia" "$temp/elsewhere/"
ln -s "$temp/elsewhere" "$tree/site"
loaded=$(ldd "$tree/libexec/neox-train")
[[ $loaded == *"$tree/libexec/../site/torch/lib/libtorch_cpu.so"* ]] || fail "the link site is not followed" "$loaded"
"$tree/bin/neox-train" 70M -d "$tree/share/neox/configs/pythia" --dry-run > /dev/null || fail "neox-train does not run through the link site"

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }  # NAME
cmake -S "$(cached CMAKE_HOME_DIRECTORY)" -B "$temp/no_mpi" -G "$(cached CMAKE_GENERATOR)" -DLibTorch_ROOT="$(cached LibTorch_ROOT)" \
  -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)" -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DBUILD_TESTING=OFF > "$temp/log" 2>&1 ||
  fail "cmake without MPI" "$(tail -n 20 "$temp/log")"
cmake --build "$temp/no_mpi" --target help > "$temp/log"
for target in ceilings kernels generate_ours checkpoint; do
  grep -q "^$target:" "$temp/log" || fail "a build without MPI has no $target"
done
