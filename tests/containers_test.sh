#!/usr/bin/env bash
# The CPU image builds from the tree with buildah, is smaller than 1 GB, sets no variable that tunes a run, and its
# programs do their work in it. Its base is a bare Debian made by mmdebstrap, since a registry may be out of reach.
# Takes about 10 minutes and 8 GB. $PIP_CERT and $PIP_INDEX_URL are passed on to the build.
# Usage: containers_test.sh BUILD_DIRECTORY
set -euo pipefail
build=$(cd "$1" && pwd)
repo=$(cd "$(dirname "$0")/.." && pwd)
skip() { echo "skipped: $1"; exit 77; }
fail() { echo "FAILED: $1"; shift; [ $# = 0 ] || printf '%s\n' "$@" | tail -n 30; exit 1; }
[ "$(basename "$build")" = release ] || skip "the image is built from source once, in the tests of build/release"
[ "$(id -u)" = 0 ] || skip "needs root for buildah's chroot isolation"
for tool in buildah mmdebstrap make; do command -v $tool > /dev/null || skip "$tool is not installed"; done

temp=$(mktemp -d "$build/containers_test.XXXXXX")
export BUILDAH_ISOLATION=chroot TMPDIR=$temp
store=(--storage-driver vfs --root "$temp/store" --runroot "$temp/run")
clean_up() {
  buildah "${store[@]}" umount --all > /dev/null 2>&1 || true
  rm -rf --one-file-system "$temp"
}
trap clean_up EXIT

# The Makefile says the same to each builder, and refuses others.
make() { command make --no-print-directory -C "$repo/containers" "$@"; }
[ "$(make -n build)" = "docker build  -t neox:$(sed -n 's/.*kVersion = "\(.*\)".*/\1/p' "$repo/lib/base/version.h") -f neox.Dockerfile .." ] ||
  fail "make build" "$(make -n build)"
if out=$(make -n build BUILDER=kaniko 2>&1); then fail "the builder kaniko is accepted"; fi
grep -q 'there are docker, podman and buildah' <<< "$out" || fail "make build BUILDER=kaniko" "$out"
[[ $(make -n image KIND=cpu ENROOT_IMAGE=a.sqsh) == "rm -f \"a.sqsh.new\""$'\n'"enroot import -o \"a.sqsh.new\" dockerd://neox-cpu:"* ]] ||
  fail "make image" "$(make -n image KIND=cpu ENROOT_IMAGE=a.sqsh)"
# A .sif takes the place of the old one when it is whole; where apptainer fails the old one stays, and nothing lies beside it.
mkdir "$temp/bin" "$temp/sif"
printf '#!/bin/sh\necho new > "$3"\n' > "$temp/bin/docker"
printf '#!/bin/sh\ncp "${3#docker-archive:}" "$2" && exit "${CODE:-0}"\n' > "$temp/bin/apptainer"
chmod +x "$temp/bin/docker" "$temp/bin/apptainer"
sif() { PATH=$temp/bin:$PATH make sif SIF="$temp/sif/a.sif" 2>&1 && cat "$temp/sif/"*; }
echo old > "$temp/sif/a.sif"
if out=$(CODE=1 sif); then fail "make sif does not say that apptainer failed" "$out"; fi
[ "$(cat "$temp/sif/"*)" = old ] || fail "make sif, where apptainer fails" "$(head -v "$temp/sif/"*)"
out=$(sif) && [ "${out##*$'\n'}" = new ] || fail "make sif" "$out"

mmdebstrap --quiet --mode=root --variant=minbase bookworm "$temp/base.tar" "${NEOX_TEST_MIRROR:-http://deb.debian.org/debian}" > "$temp/log" 2>&1 ||
  { tail -n 3 "$temp/log"; skip "mmdebstrap cannot make bookworm; is there a network?"; }
base=$(buildah "${store[@]}" from scratch)
buildah "${store[@]}" add -q "$base" "$temp/base.tar" / > /dev/null
buildah "${store[@]}" commit -q --rm "$base" neox-test-base > /dev/null
rm "$temp/base.tar"

# A certificate of the site travels as a read-only file.
arguments=(--build-arg BASE=localhost/neox-test-base --network host)
if [ -n "${PIP_INDEX_URL-}" ]; then arguments+=(--build-arg "PIP_INDEX_URL=$PIP_INDEX_URL"); fi
if [ -n "${PIP_CERT-}" ]; then arguments+=(--build-arg PIP_CERT=/run/site-ca.crt --volume "$PIP_CERT:/run/site-ca.crt:ro"); fi
start=$SECONDS
buildah "${store[@]}" build --pull=never "${arguments[@]}" -t neox-cpu-test -f "$repo/containers/neox-cpu.Dockerfile" "$repo" > "$build/containers_test.log" 2>&1 ||
  fail "buildah build; see $build/containers_test.log" "$(tail -n 20 "$build/containers_test.log")"
echo "built in $((SECONDS - start)) s"

container=$(buildah "${store[@]}" from --pull-never localhost/neox-cpu-test)
root=$(buildah "${store[@]}" mount "$container")
size=$(($(du -sb "$root" | cut -f1) / 1000000))
echo "the image has $size MB"
[ "$size" -lt 1000 ] || fail "the image has $size MB, 1 GB or more" "$(du -m "$root" | sort -rn | head -n 15)"
tunables=$(buildah "${store[@]}" inspect --format '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' "$container" | grep -vE '^(PATH=.*)?$' || true)
[ -z "$tunables" ] || fail "the image sets variables" "$tunables"
[ ! -e "$root/src" ] || fail "the sources are in the image"

install -m 755 "$repo/tests/tiny_job.sh" "$root/tiny_job.sh"
inside() { buildah "${store[@]}" run --network none "$container" -- "$@" 2>&1; }
out=$(inside sh -c 'cd /tmp && neox-train --version && neox-train 70M -d /opt/neox/share/neox/configs/pythia --explain | wc -l') ||
  fail "neox-train in the image" "$out"
out=$(inside sh /tiny_job.sh /usr/local/bin /tmp/job) || fail "the tiny job in the image" "$out"
grep -q 'tiny job done' <<< "$out" || fail "the tiny job did not finish" "$out"
out=$(inside sh -c 'ldconfig -p | grep -c "libmpi.so\|libpmix.so"') && [ "$out" -ge 2 ] || fail "Open MPI or PMIx is missing" "$out"
rm "$build/containers_test.log"
echo "the programs of the image work"
