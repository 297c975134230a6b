#!/usr/bin/env bash
# Prints the torch directory to build with: $NEOX_TORCH_DIR, else the one that env/setup.sh installed.
# Prints nothing and fails where there is none.
source "$(dirname "$0")/common.sh"
if [ -n "${NEOX_TORCH_DIR-}" ]; then echo "$NEOX_TORCH_DIR"; exit 0; fi
for dir in "$(neox_prefix)/torch-$torch_version"/lib/python3*/site-packages/torch; do
  if [ -e "$dir/lib/libtorch_cpu.so" ]; then echo "$dir"; exit 0; fi
done
exit 74
