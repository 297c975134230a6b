#!/usr/bin/env bash
# Installs what neox.cpp is built with, and only what is missing:
#   packages of Debian 12 or 13, or Ubuntu 24.04 (as root, or through sudo), and
#   LibTorch and Arrow: the PyPI wheels of torch 2.11.0 and pyarrow 26.0.1 in a private environment, of which only the C++
#     libraries are used.
# Usage: env/setup.sh [--prefix DIR] [--no-packages] [--tests] [--quiet]
#   --prefix DIR    where LibTorch goes (default ~/.local/share/neox); remembered for this checkout
#   --no-packages   leaves the distribution's packages alone, for other distributions; remembered until it is run without
#   --tests         also the packages of the tests on a real Slurm cluster and on FUSE mounts; no service of theirs is started
#   --quiet         says nothing where nothing is missing
# NEOX_TORCH_DIR=.../site-packages/torch takes an existing wheel of torch 2.11.0 instead, and the pyarrow beside it.
# Safe to run again and after an interruption; takes under a second when all is there.
source "$(dirname "$0")/common.sh"

# Each has its line in docs/dependencies.md.
packages=(
  g++ cmake ninja-build ccache pkg-config                              # compile
  libhdf5-dev libyaml-cpp-dev libboost-program-options-dev             # libraries
  nlohmann-json3-dev libxxhash-dev libsimdjson-dev libonig-dev
  openmpi-bin libopenmpi-dev libpmix-dev                               # several ranks on CPUs
  libcurl4-openssl-dev libssl-dev libarchive-dev
  nettle-dev liblzma-dev libzstd-dev liblz4-dev libbz2-dev zlib1g-dev  # also of the static libarchive
  libgtest-dev libgmock-dev hdf5-tools                                 # tests
  help2man patchelf fortunes                                           # man pages; bundles; the quickstart's text
  python3-venv ca-certificates                                         # fetch LibTorch
)
test_packages=(slurmctld slurmd slurm-client munge libpmix-dev openmpi-bin iproute2 procps bindfs fuse3)
# MB to download and on disk, measured, of the wheels of torch 2.11.0 and pyarrow 26.0.1, and of the latter alone.
cpu_set=(600 1425)
full_set=(2775 4875)
arrow_set=(55 175)
libtorch=torch/lib/libtorch_cpu.so  # of a site-packages

main() {
  local prefix="" packages_too=1 quiet=0 mark=$repo/.deps/no-packages
  while [ $# -gt 0 ]; do
    case $1 in
      --prefix) [ -n "${2-}" ] || fail 64 "--prefix needs a directory"; prefix=$2; shift 2 ;;
      --prefix=?*) prefix=${1#*=}; shift ;;
      --no-packages) packages_too=0; shift ;;
      --tests) packages+=("${test_packages[@]}"); shift ;;
      --quiet) quiet=1; shift ;;
      -h|--help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
      *) fail 64 "unknown argument $1; see env/setup.sh --help" ;;
    esac
  done
  if [ -n "$prefix" ]; then remember_prefix "$prefix"; fi
  if [ $packages_too = 0 ]; then mkdir -p "$repo/.deps" && touch "$mark"
  elif [ $quiet = 1 ] && [ -e "$mark" ]; then packages_too=0
  else rm -f "$mark"; fi
  done_something=0
  if [ $packages_too = 1 ]; then install_packages; fi
  if [ -n "${NEOX_TORCH_DIR-}" ]; then check_torch "$NEOX_TORCH_DIR"; else install_torch "$(neox_prefix)"; fi
  if [ $quiet = 0 ] && [ -n "${NEOX_TORCH_DIR-}" ] && [ ! -d "$NEOX_TORCH_DIR/../pyarrow/include" ]; then
    say "Beside the torch that NEOX_TORCH_DIR names is no pyarrow, so Parquet and Arrow files will not be read: install pyarrow==$arrow_version there"
  fi
  if [ $done_something = 1 ]; then say "Set-up done. Next: env/quickstart.sh, or env/build.sh."
  elif [ $quiet = 0 ]; then say "Nothing to install: packages and LibTorch $torch_version are there ($("$repo/env/torch_dir.sh"))."; fi
}

remember_prefix() {
  mkdir -p "$1" "$repo/.deps" || fail 74 "cannot make $1"
  (cd "$1" && pwd) > "$repo/.deps/prefix"
}

# --- packages of the distribution ---

# The packages that are not installed, one per line.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null | awk '$2 == "installed" { print $1 }' || true)
  printf '%s\n' "${packages[@]}" | grep -vxF "$installed" || true
}

check_distribution() {
  local id
  # shellcheck source=/dev/null
  id=$(. "${NEOX_OS_RELEASE:-/etc/os-release}" 2>/dev/null && echo "${ID-} ${VERSION_ID-}" || true)
  case $id in
    "debian 12" | "debian 13" | "ubuntu 24.04") ;;
    *) fail 64 "written for Debian 12 and 13, and Ubuntu 24.04; this is ${id:-an unknown system}" \
         "Install what docs/dependencies.md lists, then run env/setup.sh --no-packages." ;;
  esac
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# By env, since sudo hands on no variables, and a network may be behind a proxy.
apt_get() {
  local name settings=(DEBIAN_FRONTEND=noninteractive LC_ALL=C)
  for name in http_proxy https_proxy no_proxy; do [ -z "${!name-}" ] || settings+=("$name=${!name}"); done
  as_root env "${settings[@]}" apt-get "$@"
}

# Root, or sudo with or, on a terminal, after a password.
may_install() {
  [ "$(id -u)" = 0 ] && return
  command -v sudo > /dev/null || return
  sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }
}

install_packages() {
  local missing; mapfile -t missing < <(missing_packages)
  if [ ${#missing[@]} = 0 ]; then return; fi
  check_distribution
  say "Missing packages: ${missing[*]}"
  may_install || fail 74 "these packages must be installed by an administrator, with this command:" "" \
    "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" "" "Then run env/setup.sh again."
  apt_get -q update > /dev/null || fail 74 "apt-get update failed; is there a network?"
  apt_sizes "${missing[@]}"
  forbid_services
  apt_get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends "${missing[@]}" > "$(log_file apt)" 2>&1 ||
    fail 74 "apt-get install failed; the end of $(log_file apt):" "$(tail -n 15 "$(log_file apt)")"
  done_something=1
}

# Debian starts a daemon as soon as it is installed, unless this file says otherwise (man invoke-rc.d).
forbid_services() {
  local policy=/usr/sbin/policy-rc.d
  if [ -e $policy ] || [[ " ${packages[*]} " != *" slurmd "* ]]; then return; fi
  printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin $policy || fail 74 "cannot write $policy"
  trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
}

# Says what apt would download and use, and checks that there is room.
apt_sizes() {
  local plan used
  plan=$(apt_get install --assume-no --no-install-recommends "$@" 2>&1 || true)
  grep -E '^(Need to get|After this operation)' <<< "$plan" | sed 's/^/  /' || true
  used=$(sed -n 's/^After this operation, \([0-9.,]*\) \([kMG]\)B of.*/\1 \2/p' <<< "$plan" |
    awk '{ gsub(",", "", $1); printf "%d", $1 * ($2 == "G" ? 1000 : $2 == "M" ? 1 : 0) + 1 }')
  need_space /usr $((${used:-0} + 100)) "installing the packages"
}

log_file() { mkdir -p "$repo/.deps"; echo "$repo/.deps/$1.log"; }

# --- LibTorch ---

# check_torch DIR: is it the torch directory of a wheel of the version that we build with?
check_torch() {
  local found
  [ -e "$1/lib/libtorch_cpu.so" ] && [ -d "$1/include/ATen" ] ||
    fail 64 "NEOX_TORCH_DIR=$1 is not the torch directory of a wheel: it lacks lib/libtorch_cpu.so or include/ATen" \
      "It is the directory 'torch' in the site-packages of an environment that has torch $torch_version."
  found=$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$1/version.py" 2>/dev/null || true)
  [ "$found" = "$torch_version" ] ||
    fail 64 "NEOX_TORCH_DIR=$1 holds torch ${found:-of an unknown version}; neox.cpp is built with $torch_version, no other"
}

# The venv is made beside its place and renamed when whole; the file `set` in it says which wheels it has.
install_torch() {
  local venv=$1/torch-$torch_version want=cpu have
  if find_nvcc > /dev/null; then want=full; fi
  if has_wheels "$venv" $want; then return; fi
  mkdir -p "$1" 2>/dev/null && exec 9> "$1/lock" || fail 74 "cannot write to $1; choose another place with --prefix DIR"
  wait_for_others "$1"
  if has_wheels "$venv" $want; then return; fi
  have=$(cat "$venv/set" 2>/dev/null || true)
  site_has "$venv" "$libtorch" || have=""
  if [ "$have" = full ]; then want=full; fi
  local what sizes
  if [ "$have" = $want ]; then
    what="Arrow $arrow_version" sizes=("${arrow_set[@]}")
  elif [ $want = full ]; then
    what="LibTorch $torch_version and Arrow $arrow_version, with CUDA, since $(find_nvcc) is there" sizes=("${full_set[@]}")
  else
    what="LibTorch $torch_version and Arrow $arrow_version, for the CPU" sizes=("${cpu_set[@]}")
  fi
  say "$what: about ${sizes[0]} MB to download, ${sizes[1]} MB in $venv"
  need_space "$1" $((sizes[0] * 2 + sizes[1])) "${what%%,*}, with its download,"
  if [ -n "$have" ]; then add_wheels "$venv" $want; else make_venv "$venv" $want; fi
  done_something=1
}

# With the file `lock` of the prefix open as 9. Not every file system has locks, as Lustre mounted without -o flock.
wait_for_others() {
  local code=0; flock -n 9 || code=$?
  if [ $code = 1 ]; then
    say "Waiting for another set-up that works in $1"
    code=0; flock 9 || code=$?
  fi
  if [ $code != 0 ]; then say "Cannot lock $1/lock: run no other set-up that works in $1 meanwhile"; fi
}

# has_wheels VENV SET
has_wheels() {
  local have; have=$(cat "$1/set" 2>/dev/null || true)
  [ "$have" = "$2" ] || [ "$have" = full ] || return 1
  site_has "$1" "$libtorch" && site_has "$1" "pyarrow-$arrow_version.dist-info"
}

# site_has VENV PATH: is that in its site-packages?
site_has() {
  local site
  for site in "$1"/lib/python3*/site-packages; do [ ! -e "$site/$2" ] || return 0; done
  return 1
}

make_venv() {
  local venv=$1 new=$1.new start=$SECONDS python
  python=$(system_python) || fail 74 "python3 is missing; it unpacks the wheel"
  rm -rf "$new"
  "$python" -m venv "$new" > "$(log_file venv)" 2>&1 ||
    fail 74 "$python -m venv failed; is the package python3-venv installed?" "$(tail -n 5 "$(log_file venv)")"
  add_wheels "$new" "$2"
  rm -rf "$venv"
  mv "$new" "$venv"
  say "LibTorch is there after $(since "$start")"
}

# The distribution's python3: another one in PATH may lack what venv needs.
system_python() { if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi; }

# libtorch_cpu.so needs these two of NVIDIA's libraries to load, also without a GPU; the CPU build needs no others.
add_wheels() {
  local wheels=(--no-deps "torch==$torch_version" "pyarrow==$arrow_version" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
  if [ "$2" = full ]; then wheels=("torch==$torch_version" "pyarrow==$arrow_version"); fi
  local log; log=$(log_file pip)
  mkdir -p "$1/tmp"
  TMPDIR=$1/tmp pip_install "$1" "${wheels[@]}" > "$log" 2>&1 ||
    fail 74 "pip could not install torch $torch_version and pyarrow $arrow_version; the end of $log:" "$(tail -n 6 "$log")" \
      "Without a network, copy the site-packages of another machine that has both and name its torch directory with NEOX_TORCH_DIR."
  rm -rf "$1/tmp"
  site_has "$1" "$libtorch" || fail 74 "pip ended without an error, but $1 has no $libtorch" \
    "Does pip's configuration name another place? See '$1/bin/python -m pip config list'."
  echo "$2" > "$1/set"
}

main "$@"
