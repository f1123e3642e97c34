# Targets: `cpu` and `gpu` (the default). Neither holds torch; the bundles are mounted at /models.
FROM python:3.11-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

FROM base AS build
RUN python3 -m venv /opt/foretell
COPY pyproject.toml constraints.txt README.md /src/
COPY bundle /src/bundle
COPY export /src/export
COPY foretell /src/foretell
COPY models /src/models
COPY service /src/service
WORKDIR /src

FROM build AS build-cpu
RUN /opt/foretell/bin/pip install --constraint constraints.txt '.[cpu]' \
    && /opt/foretell/bin/pip uninstall --yes pip setuptools

FROM build AS build-gpu
# CUDA's libraries come as wheels: the host brings the driver alone.
RUN /opt/foretell/bin/pip install --constraint constraints.txt '.[gpu]' \
    && /opt/foretell/bin/pip uninstall --yes pip setuptools

FROM base AS serving
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin foretell
ENV PATH=/opt/foretell/bin:$PATH FORETELL_HOST=0.0.0.0 FORETELL_PORT=8000 FORETELL_MODELS=/models
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['FORETELL_PORT']}/healthz\", timeout=2)"]
ENTRYPOINT ["foretell"]
CMD ["serve"]

FROM serving AS cpu
ENV FORETELL_DEVICE=cpu
COPY --from=build-cpu /opt/foretell /opt/foretell

FROM serving AS gpu
ENV FORETELL_DEVICE=cuda NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-gpu /opt/foretell /opt/foretell
