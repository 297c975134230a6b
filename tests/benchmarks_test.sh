#!/usr/bin/env bash
# benchmarks/run: its tables, plots and results from recorded lines, and the train suite at a tiny size without peers.
# Usage: benchmarks_test.sh TREE BUILD_DIRECTORY
set -euo pipefail
command -v python3 > /dev/null || { echo "there is no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$(dirname "$0")/benchmarks_test.py" "$1" "$2"
