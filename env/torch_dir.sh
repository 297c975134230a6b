#!/usr/bin/env bash
# Prints the torch directory to build with: $NEOX_TORCH_DIR, else the one that env/setup.sh installed.
# Prints nothing and fails where there is none.
set -euo pipefail
if [ -n "${NEOX_TORCH_DIR-}" ]; then echo "$NEOX_TORCH_DIR"; exit 0; fi
here=$(cd "$(dirname "$0")/.." && pwd)
prefix=$(cat "$here/.deps/prefix" 2>/dev/null || echo "${XDG_DATA_HOME:-$HOME/.local/share}/neox")
for dir in "$prefix"/torch-2.11.0/lib/python3*/site-packages/torch; do
  if [ -e "$dir/lib/libtorch_cpu.so" ]; then echo "$dir"; exit 0; fi
done
exit 1
