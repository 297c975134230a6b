# Sourced by the scripts beside it: where the checkout is, and how to speak and to fail.
# shellcheck shell=bash
set -euo pipefail
unset CDPATH
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
torch_version=2.11.0
arrow_version=26.0.1
export repo torch_version arrow_version

say() { printf '%s\n' "$*"; }

# fail CODE TEXT...: one line to stderr each; codes as in docs/exit-codes.md.
fail() {
  local code=$1; shift
  printf '%s\n' "$(basename "$0"): $1" "${@:2}" >&2
  exit "$code"
}

# What env/setup.sh installs LibTorch under, for this checkout.
neox_prefix() { cat "$repo/.deps/prefix" 2>/dev/null || echo "${XDG_DATA_HOME:-$HOME/.local/share}/neox"; }

# pip_install VENV ARGUMENT...: into that environment, whatever else Python finds (-I: no PYTHONPATH), and wherever pip is told to
# install by default.
pip_install() {
  env -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT -u PIP_USER "$1/bin/python" -I -m pip --disable-pip-version-check install --quiet "${@:2}"
}

# The CUDA compiler's path: $CUDACXX, else nvcc; fails where there is none.
find_nvcc() {
  if [ -n "${CUDACXX-}" ]; then command -v "$CUDACXX"
  else command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; }; fi
}

# free_mb DIR: free space in MB where DIR is or will be.
free_mb() {
  local dir=$1
  while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
  df -Pm "$dir" | awk 'NR == 2 { print $4 }'
}

# need_space DIR MB WHAT
need_space() {
  local free; free=$(free_mb "$1")
  [ "$free" -ge "$2" ] || fail 74 "$3 needs $2 MB in $1, where $free MB are free" "Free some space, or choose another place with env/setup.sh --prefix DIR."
}

# since SECONDS_AT_START: "2 min 5 s"
since() {
  local s=$((SECONDS - $1))
  if [ $s -ge 60 ]; then echo "$((s / 60)) min $((s % 60)) s"; else echo "$s s"; fi
}
