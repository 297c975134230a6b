#!/bin/sh
# Starts the program of this name in ../libexec with the LibTorch that NEOX_TORCH_DIR names: a directory made by
# pip install --target, a site-packages directory, or the directory torch in one. Without the variable: the link or
# directory `site` beside bin.
torch_version=@TORCH_VERSION@
library_dirs='@LIBRARY_DIRS@'

case $0 in */*) self=$0 ;; *) self=$(command -v -- "$0") ;; esac
while [ -h "$self" ]; do
  link=$(readlink -- "$self")
  case $link in /*) self=$link ;; *) self=${self%/*}/$link ;; esac
done
name=${self##*/}
tree=${self%/*}/..

fail() {
  printf '%s: %s\n' "$name" "$1" >&2
  printf '%s\n' "Install it with: pip install --target DIR --python-version 3.12 --only-binary=:all: torch==$torch_version" \
    "and say where it is: export NEOX_TORCH_DIR=DIR" >&2
  exit 64
}

if [ -n "${NEOX_TORCH_DIR-}" ]; then
  asked="NEOX_TORCH_DIR=$NEOX_TORCH_DIR"
  case $NEOX_TORCH_DIR in /*) site=$NEOX_TORCH_DIR ;; *) site=$PWD/$NEOX_TORCH_DIR ;; esac
  if [ -e "$site/lib/libtorch_cpu.so" ]; then site=$site/..; fi
elif [ -e "$tree/site" ]; then
  asked="the link $tree/site"
  site=$tree/site
else
  fail "this program needs LibTorch $torch_version, and NEOX_TORCH_DIR does not say where it is."
fi

case $site in *:*) fail "$asked: the path has a colon, at which the loader parts LD_LIBRARY_PATH." ;; esac
[ -e "$site/torch/lib/libtorch_cpu.so" ] || fail "$asked has no torch/lib/libtorch_cpu.so."
found=unknown
if [ -r "$site/torch/version.py" ]; then
  while read -r key _ value; do
    if [ "$key" = __version__ ]; then found=${value#\'}; found=${found%%[+\']*}; fi
  done < "$site/torch/version.py"
fi
[ "$found" = "$torch_version" ] || fail "$asked holds torch $found; this program is built with $torch_version, no other."
# LibTorch itself finds NVIDIA's libraries relative to its own place, also where it runs on CPUs.
for dir in nvidia $library_dirs; do
  [ -d "$site/$dir" ] || fail "$asked lacks $dir, which comes with torch's dependencies."
done
path=
for dir in $library_dirs pyarrow; do path=$path$site/$dir:; done  # the latter for Parquet and Arrow, where it is there
LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH-}
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH%:}"
exec "$tree/libexec/$name" "$@"
