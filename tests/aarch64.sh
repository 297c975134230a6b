#!/usr/bin/env bash
# Builds and tests a commit for AArch64 (Grace, Graviton, Ampere) on an x86-64 machine: in a tree of Debian 12 for arm64, whose programs
# run under qemu, but for the compiler, which is x86-64's cross compiler in the place of the tree's own. Takes an hour or two on two cores.
# Usage: tests/aarch64.sh DIRECTORY [COMMAND...]
#   DIRECTORY   of the tree; made where it is missing, set up by env/setup.sh (3 GB)
#   COMMAND     run in a clone of this repository's HEAD there; default: env/build.sh release, and the tests of what depends on
#               the processor
# Needs root and the packages mmdebstrap, qemu-user-static, g++-12-aarch64-linux-gnu. NEOX_TEST_DATA is copied into the tree.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
triple=aarch64-linux-gnu
tests='^(text|config|tokenizer|bpe_scan|bpe_trainer|wiki|indexed_dataset|sample_order|sampler|dataset|prepare|prepare_ranks|prepare_resume|json_line|blocks|metrics|plot|random|checkpoint|convert|torchfile|optim|optimizer|row_kernels|decode|ops|model|cuda_on_cpu)_test$'

main() {
  case ${1-} in ""|-h|--help) sed -n '2,9s/^# //p' "$0"; exit 0 ;; esac
  local tree; tree=$(realpath -m "$1"); shift
  need
  [ -e "$tree/made" ] || make_tree "$tree"
  git -C "$tree/root/src" pull --quiet --ff-only
  [ $# -gt 0 ] || set -- bash -c "env/build.sh release && ctest --test-dir build/release --output-on-failure -j 2 --timeout 3600 -R '$tests'"
  inside "$tree" "$@"
}

need() {
  [ "$(id -u)" = 0 ] || { echo "aarch64.sh: needs root, for a chroot" >&2; exit 77; }
  local program
  for program in mmdebstrap qemu-aarch64-static $triple-g++-12; do
    command -v "$program" > /dev/null || { echo "aarch64.sh: $program is missing; install mmdebstrap qemu-user-static g++-12-aarch64-linux-gnu" >&2; exit 77; }
  done
  local formats=/proc/sys/fs/binfmt_misc
  [ -e $formats/register ] || mount -t binfmt_misc none $formats
  [ -e $formats/qemu-aarch64 ] || printf '%s' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64-static):F" > $formats/register
}

make_tree() {
  rm -rf "$1"
  mmdebstrap --quiet --architectures=arm64 --variant=minbase --include=ca-certificates,git,sudo,procps bookworm "$1"
  local file
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do if [ -e $file ]; then cp -L $file "$1$file"; fi; done
  cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
  git clone --quiet "$repo" "$1/root/src"
  inside "$1" env/setup.sh
  touch "$1/made"
}

# inside TREE COMMAND...: in the chroot, where the compiler is this machine's for the other kind, once the tree has its own. QEMU_CPU:
# instructions for vectors of any length, which qemu has too, take it eight times as long.
inside() {
  local kept; mapfile -t kept < <(env | grep -iE '^(pip_|https?_proxy|no_proxy|ssl_cert|requests_ca)' || true)
  if [ -n "${NEOX_TEST_DATA-}" ]; then
    mkdir -p "$1/data" && cp -rT "$NEOX_TEST_DATA" "$1/data"
    kept+=(NEOX_TEST_DATA=/data)
  fi
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child bash -c '
    set -e
    tree=$1 triple=$2; shift 2
    mount --bind "$tree" "$tree"; mount -t proc proc "$tree/proc"; mount --rbind /dev "$tree/dev"; mount -t sysfs sys "$tree/sys"
    for place in /lib64 /usr/lib/x86_64-linux-gnu /usr/lib/gcc-cross /usr/$triple; do mkdir -p "$tree$place"; mount --bind $place "$tree$place"; done
    for program in g++-12 gcc-12 as ld.bfd; do
      at=$tree/usr/bin/$triple-$program
      if [ -e "$at" ]; then mount --bind "$(readlink -f /usr/bin/$triple-$program)" "$at"; fi
    done
    exec chroot "$tree" env -i HOME=/root QEMU_CPU=cortex-a76 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"' _ \
    "$1" $triple "${kept[@]}" bash -c 'cd /root/src && exec "$@"' _ "${@:2}"
}

main "$@"
