# Targets: `cpu` and `gpu` (the default). Neither holds torch; the bundles are mounted at /models.
FROM python:3.11-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

FROM base AS build
RUN python3 -m venv /opt/foretell
WORKDIR /src
ENV REQUIREMENTS="import sys, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*project['dependencies'], *(line for extra in sys.argv[1:] for line in project['optional-dependencies'][extra]), sep='\\n')"
COPY pyproject.toml constraints.txt /src/

# What foretell needs comes first: a change of its code does not install it again.
FROM build AS build-cpu
RUN python3 -c "$REQUIREMENTS" cpu arrow otel > requirements.txt \
    && /opt/foretell/bin/pip install --constraint constraints.txt --requirement requirements.txt
COPY . /src
RUN /opt/foretell/bin/pip install --no-deps . && /opt/foretell/bin/pip uninstall --yes pip setuptools

FROM build AS build-gpu
# CUDA's libraries come as wheels: the host brings the driver alone.
RUN python3 -c "$REQUIREMENTS" gpu arrow otel > requirements.txt \
    && /opt/foretell/bin/pip install --constraint constraints.txt --requirement requirements.txt
COPY . /src
RUN /opt/foretell/bin/pip install --no-deps . && /opt/foretell/bin/pip uninstall --yes pip setuptools

FROM base AS serving
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin foretell
ENV PATH=/opt/foretell/bin:$PATH FORETELL_HOST=0.0.0.0 FORETELL_PORT=8000 FORETELL_MODELS=/models
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python3", "-c", "from os import environ as e; from urllib.request import urlopen; port = e.get('FORETELL_OPERATIONS_PORT') or e['FORETELL_PORT']; urlopen(f'http://127.0.0.1:{port}/healthz', timeout=2)"]
ENTRYPOINT ["foretell"]
CMD ["serve"]

FROM serving AS cpu
ENV FORETELL_DEVICE=cpu
COPY --from=build-cpu /opt/foretell /opt/foretell

FROM serving AS gpu
ENV FORETELL_DEVICE=cuda NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-gpu /opt/foretell /opt/foretell
