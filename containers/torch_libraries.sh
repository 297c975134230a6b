#!/usr/bin/env bash
# Copies out of a site-packages directory what a program of neox.cpp loads of LibTorch, Arrow and NVIDIA's libraries,
# with their licences: no Python, no headers, no static libraries.
# Usage: torch_libraries.sh SITE_PACKAGES DESTINATION cpu|cuda
set -euo pipefail
site=$(cd "$1" && pwd -P) kind=$3
mkdir -p "$2"
destination=$(cd "$2" && pwd)
cd "$site"

# What ldd cannot see, because it is loaded by name at run time: LibTorch's linear algebra and its access to NVRTC
# (kernels compiled on the fly) with NVRTC's own parts, and cuDNN's; and what reads Parquet, Arrow and S3.
opened=(pyarrow/libparquet.so.* pyarrow/libarrow_s3.so.*)
libraries=(torch/lib/libtorch_cpu.so)
if [ "$kind" = cuda ]; then
  libraries+=(torch/lib/libtorch_cuda.so)
  opened+=(torch/lib/libtorch_cuda_linalg.so torch/lib/libcaffe2_nvrtc.so nvidia/cu*/lib/libnvrtc-builtins.so.* nvidia/cudnn/lib/libcudnn_*.so.*)
fi

for library in "${libraries[@]}" ${opened[@]+"${opened[@]}"}; do
  [ -e "$library" ] || { echo "torch_libraries.sh: $site lacks $library" >&2; exit 74; }
  echo "$library"
  # Each needed library is printed with the path that the loader found it at.
  LD_LIBRARY_PATH='' ldd "$library" | sed -n 's/.* => \(.*\) (0x.*/\1/p' | xargs -r -d '\n' realpath |
    sed -n "s,^$site/,,p"
done | sort -u | while read -r library; do
  install -D "$library" "$destination/$library"
done
install -D -m 644 torch/version.py "$destination/torch/version.py"
for licence in torch-*.dist-info/licenses/LICENSE torch-*.dist-info/LICENSE pyarrow-*.dist-info/licenses/LICENSE.txt nvidia*.dist-info/licenses/License.txt nvidia*.dist-info/License.txt; do
  if [ -e "$licence" ]; then install -D -m 644 "$licence" "$destination/licences/${licence%%-*}.txt"; fi
done
