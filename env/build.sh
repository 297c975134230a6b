#!/usr/bin/env bash
# Sets up what is missing and builds into build/<preset>; programs in build/<preset>/bin.
# Usage: env/build.sh [PRESET] [TARGET...]     PRESET: release (default), debug, asan, cuda
source "$(dirname "$0")/common.sh"

# A compiler that includes LibTorch's headers takes up to about 1.2 GB. CMAKE_BUILD_PARALLEL_LEVEL overrides.
jobs() {
  local memory; memory=$( { sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo; group_limits; } | sort -n | head -n 1)
  memory=$((memory / 1200000))
  local cores; cores=$(nproc)
  echo "${CMAKE_BUILD_PARALLEL_LEVEL:-$((memory < 1 ? 1 : memory < cores ? memory : cores))}"
}

# Memory in kB, one a line, that the control groups of a container or a Slurm job allow, of which /proc/meminfo does not know.
group_limits() {
  local kinds group root name
  while IFS=: read -r _ kinds group; do
    case ,$kinds, in
      ,,) root=/sys/fs/cgroup name=memory.max ;;
      *,memory,*) root=/sys/fs/cgroup/memory name=memory.limit_in_bytes ;;
      *) continue ;;
    esac
    group=${group%/}
    while cat "$root$group/$name" || true; [ -n "$group" ]; do group=${group%/*}; done
  done < /proc/self/cgroup 2> /dev/null | awk '/^[0-9]+$/ { printf "%d\n", $1 / 1024 }'
}

check_preset() {
  case $1 in
    release|debug|asan) ;;
    cuda)
      CUDACXX=$(find_nvcc) || fail 64 "the preset cuda needs the CUDA compiler nvcc, which is neither in PATH nor in /usr/local/cuda/bin" \
        "Install the CUDA toolkit 13.0, or name nvcc with CUDACXX=/path/to/nvcc; without a GPU take the preset release."
      export CUDACXX ;;
    *) fail 64 "no preset $1; there are release, debug, asan and cuda" ;;
  esac
}

# The directories of PATH without those of conda's environments, whose libraries CMake would find beside the programs there, and
# mix with the distribution's. All of them where env/setup.sh --no-packages was told that libraries come from elsewhere.
path_to_build() {
  local dir kept="" dirs
  if [ -e .deps/no-packages ]; then echo "$PATH"; return; fi
  IFS=: read -ra dirs <<< "$PATH"
  for dir in "${dirs[@]}"; do [ -d "${dir%/*}/conda-meta" ] || kept+=:$dir; done
  echo "${kept#:}"
}

# Configures anew where LibTorch has moved: CMake remembers the old one in each path.
configure() {
  local dir=build/$1 torch known fresh=()
  torch=$(env/torch_dir.sh) || fail 74 "LibTorch is missing; run env/setup.sh"
  known=$(sed -n 's/^LibTorch_ROOT:PATH=//p' "$dir/CMakeCache.txt" 2>/dev/null || true)
  if [ -n "$known" ] && [ "$known" != "$torch" ]; then fresh=(--fresh); fi
  if [ "$known" = "$torch" ] && [ -e "$dir/build.ninja" ]; then return; fi
  NEOX_TORCH_DIR=$torch cmake --preset "$1" "${fresh[@]}" > "$dir.log" 2>&1 ||
    fail 70 "cmake failed; the end of $repo/$dir.log:" "$(tail -n 20 "$dir.log")"
}

main() {
  if [ "${1-}" = --help ] || [ "${1-}" = -h ]; then sed -n '2,3s/^# //p' "$0"; exit 0; fi
  local preset=${1:-release} start=$SECONDS
  [ $# = 0 ] || shift
  cd "$repo"
  check_preset "$preset"
  env/setup.sh --quiet
  PATH=$(path_to_build)
  mkdir -p build
  configure "$preset"
  say "Building build/$preset with $(jobs) jobs"
  cmake --build "build/$preset" -j "$(jobs)" ${1+--target "$@"} || fail 70 "the build failed; see above"
  say "Built in $(since "$start"); programs: $repo/build/$preset/bin"
}

main "$@"
