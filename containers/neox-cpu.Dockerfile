# neox.cpp on CPUs: the programs, LibTorch without CUDA, Open MPI and PMIx. Build it with `make -C containers build
# KIND=cpu`; README.md says what is in it. BASE: Debian 12 or Ubuntu 24.04.
ARG BASE=docker.io/library/debian:bookworm-20251229-slim

FROM ${BASE} AS build
# A site's own index of Python packages, and a certificate that it signs with (a path in the container).
ARG PIP_INDEX_URL
ARG PIP_CERT
WORKDIR /src
COPY env env
RUN env/setup.sh --prefix /opt/torch
COPY . .
RUN env/build.sh release programs \
 && cmake --install build/release --prefix /opt/neox --strip \
 && containers/torch_libraries.sh "$(dirname "$(env/torch_dir.sh)")" /opt/neox/site cpu

FROM ${BASE}
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates libgcc-s1 libstdc++6 openmpi-bin \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
COPY --from=build /opt/neox /opt/neox
# Links, because the PATH of a job wins over an image's under pyxis.
RUN ln -s /opt/neox/bin/neox-* /usr/local/bin/ && neox-train --version
WORKDIR /workspace
CMD ["neox-train", "--help"]
