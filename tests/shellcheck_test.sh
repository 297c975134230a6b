#!/usr/bin/env bash
# The program shellcheck finds nothing in the shell scripts of the tree; skipped (77) where it is not installed.
# Usage: shellcheck_test.sh TREE
set -euo pipefail
cd "$1"
command -v shellcheck > /dev/null || { echo "shellcheck is not installed"; exit 77; }
find . -path ./build -prune -o -path ./.git -prune -o \
  \( -name '*.sh' -o -name '*.bash' -o -name '*.sbatch' -o -path ./.ci/run -o -path ./tests/slurm/slurm_cluster \) -print0 | xargs -0 shellcheck
