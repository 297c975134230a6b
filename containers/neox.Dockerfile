# neox.cpp on NVIDIA GPUs: the programs, LibTorch with CUDA and NCCL out of its wheel, EFA. Build it with `make -C
# containers build`; README.md says what is in it. The driver and libcuda come from the host. BASE: Ubuntu 24.04 or Debian 12.
ARG BASE=docker.io/library/ubuntu:noble-20251013

FROM ${BASE} AS build
# A site's own index of Python packages, and a certificate that it signs with (a path in the container).
ARG PIP_INDEX_URL
ARG PIP_CERT
WORKDIR /src
# The CUDA compiler of the version that the wheel of torch is made with.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates python3-venv \
 && python3 -m venv /opt/cuda \
 && /opt/cuda/bin/pip install --no-deps nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 \
      nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96 \
 && ln -s /opt/cuda/lib/python3*/site-packages/nvidia/cu13 /usr/local/cuda \
 && ln -s lib /usr/local/cuda/lib64
COPY env env
RUN env/setup.sh --prefix /opt/torch
COPY . .
RUN env/build.sh cuda programs \
 && cmake --install build/cuda --prefix /opt/neox --strip \
 && containers/torch_libraries.sh "$(dirname "$(env/torch_dir.sh)")" /opt/neox/site cuda

FROM ${BASE}
# libfabric and the NCCL plugin of Elastic Fabric Adapter; empty for clusters without it. No kernel module, no limits:
# these are the host's. No MPI: NCCL needs none.
ARG EFA_INSTALLER_VERSION=1.48.0
RUN apt-get update \
 && export DEBIAN_FRONTEND=noninteractive \
 && apt-get install -y --no-install-recommends ca-certificates curl libgcc-s1 libstdc++6 \
 && if [ -n "$EFA_INSTALLER_VERSION" ]; then \
      cd /tmp \
      && curl -fsSLO "https://efa-installer.amazonaws.com/aws-efa-installer-$EFA_INSTALLER_VERSION.tar.gz" \
      && tar xf "aws-efa-installer-$EFA_INSTALLER_VERSION.tar.gz" \
      && cd aws-efa-installer \
      && ./efa_installer.sh -y --skip-kmod --no-verify --skip-limit-conf --skip-mpi \
      && ldconfig && ldconfig -p | grep libfabric && ldconfig -p | grep libnccl-net \
      && cd / && rm -rf /tmp/aws-efa-installer*; \
    fi \
 && apt-get purge -y --autoremove curl \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
COPY --from=build /opt/neox /opt/neox
# Links, because the PATH of a job wins over an image's under pyxis.
RUN ln -s /opt/neox/bin/neox-* /usr/local/bin/ && neox-train --version
# Read by NVIDIA's container hooks; without them libcuda.so.1 stays outside. Nothing that tunes a run is set here: what
# an image sets overrides what a job script exports.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /workspace
CMD ["neox-train", "--help"]
