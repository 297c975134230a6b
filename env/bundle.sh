#!/usr/bin/env bash
# Makes one relocatable archive of everything but LibTorch, Arrow, CUDA, glibc and libstdc++: programs, the shared libraries
# that not every system has, configs, scripts, documents, manual pages, completion. It runs on any Linux of this
# kind of processor with glibc 2.34 and libstdc++ of GCC 11 or later, if it was made on Debian 12, and else of the glibc it says.
# Usage: env/bundle.sh [PRESET] [DIRECTORY]    PRESET: release (default) or cuda; DIRECTORY: for the archive, default build
# There:  tar xf neox-*.tar.gz; pip install --target DIR --python-version 3.12 --only-binary=:all: torch==2.11.0 pyarrow==26.0.1; NEOX_TORCH_DIR=DIR neox-*/bin/neox-train ...
source "$(dirname "$0")/common.sh"

main() {
  case ${1-} in -h|--help) sed -n '2,6s/^# //p' "$0"; exit 0 ;; esac
  local preset=${1:-release} out=${2:-$repo/build} name
  case $preset in release|cuda) ;; *) fail 64 "a bundle is made of the preset release or cuda, not of $preset" ;; esac
  command -v patchelf > /dev/null || fail 74 "patchelf is missing; env/setup.sh installs it"
  mkdir -p "$out" && out=$(cd "$out" && pwd) || fail 74 "cannot write to ${2-}"
  cd "$repo"
  env/build.sh "$preset" programs
  name=neox-$(sed -n 's/.*kVersion = "\(.*\)".*/\1/p' lib/base/version.h)-linux-$(uname -m)
  [ "$preset" = release ] || name=$name-$preset
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  tree=$work/$name
  install_tree "$preset"
  licences > "$tree/share/doc/neox/third-party-licences.txt"
  pack "$name" "$out"
}

# The programs that need LibTorch go to libexec, each with a launcher in bin that knows where LibTorch is; the others
# run as they are. No file keeps a path of this machine.
install_tree() {
  local program rpath place
  cmake --install "build/$1" --prefix "$tree" --strip > "$work/log" 2>&1 ||
    fail 70 "cmake --install failed:" "$(tail -n 10 "$work/log")"
  find "$tree/lib" -type f -name '*.so*' -exec patchelf --remove-rpath {} +
  for program in "$tree"/bin/* "$tree"/libexec/*; do
    rpath=$(patchelf --print-rpath "$program")
    patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$program"
    if patchelf --print-needed "$program" | grep -q '^lib\(torch\|c10\)'; then
      place=$tree/bin/${program##*/}
      [ "$program" = "$tree/libexec/${program##*/}" ] || mv "$program" "$tree/libexec/"
      launcher "$rpath" > "$place"
      chmod 755 "$place"
    fi
  done
}

# launcher RPATH: its entries below ../site are what LibTorch's directory must hold.
launcher() {
  local dirs; dirs=$(tr : '\n' <<< "$1" | sed -n "s,^\\\$ORIGIN/../site/,,p" | tr '\n' ' ')
  sed -e "s,@TORCH_VERSION@,$torch_version," -e "s,@LIBRARY_DIRS@,${dirs% }," env/bundle_launcher.sh
}

# What the distribution says about the libraries that travel along.
licences() {
  local names packages package
  mapfile -t names < <(find "$tree/lib" -type f -name '*.so*' -not -path '*/neox/*' -printf '%f\n' | sort)
  mapfile -t packages < <(dpkg-query -S "${names[@]/#/*\/}" 2> /dev/null | sed 's/:.*//' | sort -u || true)
  [ ${#packages[@]} -gt 0 ] || fail 70 "no package holds ${names[*]}; their licences are unknown"
  echo "Licences of the libraries in lib/, as their Debian or Ubuntu packages state them."
  for package in "${packages[@]}"; do
    printf '\n===== %s %s\n' "$package" "$(dpkg-query -W -f '${Version}' "$package")"
    cat "/usr/share/doc/$package/copyright"
  done
}

pack() {
  local file=$2/$1.tar.gz size
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@"$(newest_change)" -C "$work" -cf - "$1" | gzip -n9 > "$file.new"
  mv "$file.new" "$file"
  size=$(stat -c %s "$file")
  [ "$size" -le $((64 << 20)) ] || fail 70 "$file has $((size >> 20)) MiB, more than 64; what grew?"
  say "$file: $(((size + (1 << 19)) >> 20)) MiB, $(du -sm "$tree" | cut -f1) MB unpacked, for systems with glibc $(needed_glibc) or later"
}

needed_glibc() {
  find "$tree" -type f \( -perm -u=x -o -name '*.so*' \) -exec objdump -T {} + 2>/dev/null |
    sed -n 's/.*\*UND\*.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort -Vu | tail -n 1 || true
}

# So that the same source makes the same archive.
newest_change() { git log -1 --format=%ct 2>/dev/null || echo 0; }

main "$@"
