# Targets: `cpu` and `gpu` (the default), on x86-64 and ARM. Neither holds torch; the bundles are mounted
# at /models. `.ci/image` builds and tries one.
ARG BASE=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
# Further libraries, from locks/extra-*.txt: --build-arg EXTRAS="postgresql" adds a ledger in PostgreSQL.
ARG EXTRAS=
FROM ${BASE} AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

FROM base AS build
WORKDIR /src
# The packages of Debian are those of the release of the base, and stay in this stage.
# hadolint ignore=DL3008,DL3009
RUN apt-get update -qq && apt-get install -qq --no-install-recommends binutils patchelf
COPY deploy/install.sh deploy/slim.sh /src/
COPY locks /src/locks
# Tools that build foretell and list its packages.
RUN python3 -m venv /opt/foretell && python3 -m venv /opt/tools && /opt/tools/bin/pip install --quiet \
    --no-deps --require-hashes --requirement locks/build.txt --requirement locks/sbom.txt
# Install foretell beside its libraries, check that libraries of a server find all symbols, and list the
# packages that the image adds to its base.
ENV FINISH="set -e; /opt/tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /opt/wheel .; \
    /opt/foretell/bin/pip install --no-deps /opt/wheel/foretell-*.whl; \
    /opt/foretell/bin/pip uninstall --yes pip setuptools; \
    LD_BIND_NOW=1 /opt/foretell/bin/python -I -c 'import foretell.service.server, foretell.service.forecast.arrow, onnxruntime, uvloop, opentelemetry.sdk.trace.export, opentelemetry.exporter.otlp.proto.http.trace_exporter, foretell.storage.bucket, foretell.storage.oci.registry'; \
    /opt/tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/foretell/sbom.json /opt/foretell/bin/python"

# Libraries come first, so that a change of the code does not install them again. The extras are
# separate words.
FROM build AS build-cpu
ARG EXTRAS
# hadolint ignore=SC2086
RUN ./install.sh cpu $EXTRAS && ./slim.sh /opt/foretell
COPY . /src
RUN sh -c "$FINISH"

FROM build AS build-gpu
ARG EXTRAS
# CUDA's libraries come as wheels: the host only needs the driver.
# hadolint ignore=SC2086
RUN ./install.sh gpu $EXTRAS && ./slim.sh /opt/foretell
COPY . /src
RUN sh -c "$FINISH"

FROM base AS serving
LABEL org.opencontainers.image.title=foretell org.opencontainers.image.version=0.1.0 \
    org.opencontainers.image.licenses=Apache-2.0
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin foretell
ENV PATH=/opt/foretell/bin:$PATH FORETELL_HOST=:: FORETELL_PORT=8000 FORETELL_MODELS=/models \
    FORETELL_CACHE=/tmp/foretell ORT_DISABLE_TELEMETRY=1
USER 10001
EXPOSE 8000
# Liveness: orchestrators kill containers that fail this. A server of one process answers after its
# models are loaded, which may take minutes; the start period ends with the first answer.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15m --retries=3 \
    CMD ["python3", "-c", "from os import environ as e; from urllib.request import urlopen; port = e.get('FORETELL_OPERATIONS_PORT') or e['FORETELL_PORT']; host = e['FORETELL_HOST'].strip('[]*'); host = '127.0.0.1' if host in ('', '::', '0.0.0.0') else host; host = f'[{host}]' if ':' in host else host; urlopen(f'http://{host}:{port}/healthz', timeout=2)"]
ENTRYPOINT ["foretell"]
CMD ["serve"]

FROM serving AS cpu
ENV FORETELL_DEVICE=cpu
COPY --from=build-cpu /opt/foretell /opt/foretell

FROM serving AS gpu
ENV FORETELL_DEVICE=cuda NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-gpu /opt/foretell /opt/foretell
