#!/usr/bin/env bash
# The bundle does its work on a bare system of another release: a fresh one made by mmdebstrap, entered with chroot,
# with nothing added but the unpacked archive and the directories of LibTorch's wheel.
# NEOX_TEST_SUITE and NEOX_TEST_MIRROR choose the release (default: trixie of Debian).
# Usage: bundle_system_test.sh BUILD_DIRECTORY      (build/release or build/cuda)
set -euo pipefail
build=$(cd "$1" && pwd)
repo=$(cd "$(dirname "$0")/.." && pwd)
suite=${NEOX_TEST_SUITE:-trixie} mirror=${NEOX_TEST_MIRROR:-http://deb.debian.org/debian}
skip() { echo "skipped: $1"; exit 77; }
fail() { echo "FAILED: $1"; shift; [ $# = 0 ] || printf '%s\n' "$@" | tail -n 20; exit 1; }

# In a mount namespace of its own: whatever happens, no mount is left behind.
if [ "${NEOX_TEST_INSIDE-}" != 1 ]; then
  case $(basename "$build") in release|cuda) ;; *) skip "no bundle is made of this preset" ;; esac
  [ "$(id -u)" = 0 ] || skip "needs root for chroot"
  for tool in mmdebstrap patchelf unshare; do command -v $tool > /dev/null || skip "$tool is not installed"; done
  unshare --mount true 2>/dev/null || skip "no mount namespaces here"
  NEOX_TEST_INSIDE=1 exec unshare --mount --propagation private "$0" "$build"
fi

temp=$(mktemp -d)
trap 'umount -lR "$temp/system" 2>/dev/null || true; rm -rf --one-file-system "$temp"' EXIT
NEOX_TORCH_DIR=$(sed -n 's/^LibTorch_ROOT:PATH=//p' "$build/CMakeCache.txt")
export NEOX_TORCH_DIR
site=$(dirname "$NEOX_TORCH_DIR")
"$repo/env/bundle.sh" "$(basename "$build")" "$temp" > "$temp/log" 2>&1 || fail "env/bundle.sh" "$(cat "$temp/log")"

mmdebstrap --quiet --mode=root --variant=minbase --include=libstdc++6 "$suite" "$temp/system.tar" "$mirror" > "$temp/log" 2>&1 ||
  { tail -n 3 "$temp/log"; skip "mmdebstrap cannot make $suite from $mirror; is there a network?"; }
mkdir "$temp/system"
mount -t tmpfs -o size=2g none "$temp/system"   # so that leaving the namespace removes it
tar xf "$temp/system.tar" -C "$temp/system" --exclude='./dev/*'
for dir in torch nvidia; do
  mkdir -p "$temp/system/opt/site/$dir"
  mount --bind -o ro "$site/$dir" "$temp/system/opt/site/$dir"
done
mount --bind /dev "$temp/system/dev"
mount -t proc proc "$temp/system/proc"
tar xf "$temp"/neox-*.tar.gz -C "$temp/system/opt"
cp "$repo/tests/tiny_job.sh" "$temp/system/opt/"

# inside COMMAND...: in the bare system, with nothing of this one's environment.
inside() { chroot "$temp/system" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root "$@"; }
inside sh -c '. /etc/os-release; echo "$PRETTY_NAME, $(ldd --version | head -n 1)"'
bin=$(cd "$temp/system" && echo opt/neox-*/bin)
got=0
out=$(inside "/$bin/neox-train" --version 2>&1) || got=$?
[ $got = 64 ] && grep -q 'pip install --target' <<< "$out" || fail "neox-train without LibTorch ended with $got" "$out"
inside env NEOX_TORCH_DIR=/opt/site "/$bin/neox-train" --version || fail "neox-train --version"
out=$(inside env NEOX_TORCH_DIR=/opt/site sh /opt/tiny_job.sh "/$bin" /tmp/job 2>&1) || fail "the tiny job" "$out"
grep -q 'tiny job done' <<< "$out" || fail "the tiny job did not finish" "$out"
echo "the bundle runs on $suite"
