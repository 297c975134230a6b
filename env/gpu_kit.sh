#!/usr/bin/env bash
# Packs the programs, tests and benchmarks of a build that benchmarks/on_gpu.sh runs, with the libraries that not every
# system has, into one archive for a machine where nothing can be built or fetched. LibTorch is that machine's.
# Usage: env/gpu_kit.sh [BUILD] [ARCHIVE]    BUILD: default build/cuda; ARCHIVE: default BUILD/neox-gpu.tar.xz
# First: cmake --build BUILD --target $(env/gpu_kit.sh --targets)
source "$(dirname "$0")/common.sh"

programs=()
for name in neox-prepare-data neox-train neox-generate; do programs+=("bin/$name" "libexec/$name"); done
programs+=(benchmarks/ceilings benchmarks/kernels benchmarks/generate_ours benchmarks/checkpoint)
for name in random kernels device graphs decode batches nccl optimizer; do programs+=("tests/${name}_test"); done

main() {
  case ${1-} in
    -h|--help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
    --targets) printf '%s\n' "${programs[@]##*/}" | sort -u | xargs; exit 0 ;;
  esac
  local build=${1:-$repo/build/cuda} archive program
  build=$(cd "$build" 2> /dev/null && pwd) || fail 74 "there is no ${1:-$repo/build/cuda}: build first with env/build.sh cuda"
  archive=${2:-$build/neox-gpu.tar.xz}
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  for program in "${programs[@]}"; do
    [ -x "$build/$program" ] || fail 74 "$build/$program is missing: cmake --build $build --target $(env/gpu_kit.sh --targets)"
    mkdir -p "$work/$(dirname "$program")" "$work/lib"
    strip -o "$work/$program" "$build/$program"
    libraries "$build/$program" | xargs -r cp -uL -t "$work/lib"
  done
  mkdir -p "$work/share/neox/configs"
  cp "$repo/configs/chat_templates.yml" "$work/share/neox/configs"
  # Programs have most of their code in common, further apart than xz looks by itself.
  tar -C "$work" -cf - . | xz --lzma2=preset=2,dict=1GiB > "$archive.new"
  mv "$archive.new" "$archive"
  say "$archive: $(($(stat -c %s "$archive") >> 20)) MiB, $(du -sm "$work" | cut -f1) MB unpacked"
}

# Those of a program that are neither of LibTorch and CUDA nor of every Linux.
libraries() {
  local found missing
  found=$(ldd "$1") || fail 74 "ldd cannot read $1"
  if missing=$(grep 'not found' <<< "$found"); then fail 74 "$1 lacks libraries:" "$missing"; fi
  awk '$2 == "=>" { print $3 }' <<< "$found" |
    grep -vE '/(torch|nvidia)/|/lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|gomp|cuda)\.so' || true
}

main "$@"
