# `make serve`: from nothing to a server with three demo models. `make test`: the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
DEMO := .demo
# The GPU build of onnxruntime where an NVIDIA driver is loaded.
RUNTIME ?= $(if $(wildcard /proc/driver/nvidia/version),gpu,cpu)
# The two builds overwrite each other's files: one has to go before the other comes.
OTHER := $(if $(filter gpu,$(RUNTIME)),onnxruntime,onnxruntime-gpu)
SERVE := $(VENV)/.serve-$(RUNTIME)
TEST := $(VENV)/.test-$(RUNTIME)

.PHONY: serve test lint types demo bench bench-bulk bench-door bench-precision bench-server \
	bench-endurance gpu-check gpu-graphs gpu-overhead gpu-subjects clean
.DELETE_ON_ERROR:

serve: $(SERVE) demo
	exec $(BIN)/foretell serve --models $(DEMO)/repository --port $(PORT)

demo: $(SERVE)
	@$(BIN)/foretell demo --to $(DEMO)

test: $(TEST)
	$(BIN)/python -m pytest

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(TEST)
	$(BIN)/mypy

# Each writes its part of docs/benchmarks.md; takes a few minutes.
bench: $(TEST)
	$(BIN)/python -m bench.graphs

bench-bulk: $(TEST)
	$(BIN)/python -m bench.bulk

# About ten minutes.
bench-endurance: $(TEST)
	$(BIN)/python -m bench.endurance

# Installs a parser that it compares.
bench-door: $(TEST)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt msgspec
	$(BIN)/python -m bench.door

# On a machine with an NVIDIA GPU: checks and measures the demo's models, writes docs/gpu.md. What
# it takes may come from another machine.
gpu-check: $(if $(wildcard $(DEMO)/gpu),$(TEST),gpu-subjects)
	$(BIN)/python -m bench.gpu $(DEMO)/gpu

# What `gpu-check` takes, made anew; without a GPU.
gpu-subjects: $(TEST) demo
	$(BIN)/python -m bench.gpu.prepare $(DEMO)/gpu

# Without a GPU, on a stand-in for CUDA's libraries; about a quarter of an hour.
gpu-graphs: $(TEST)
	$(BIN)/python -m bench.gpu.graphs

gpu-overhead: $(TEST)
	$(BIN)/python -m bench.gpu.overhead

bench-precision: $(TEST)
	$(BIN)/python -m bench.precision

# Installs the servers it compares in .bench/; needs wrk.
bench-server: $(TEST)
	$(BIN)/python -m bench.server

$(VENV)/.venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foretell needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(SERVE): pyproject.toml constraints.txt $(VENV)/.venv
	rm -f $(VENV)/.serve-* $(VENV)/.test-*
	$(BIN)/python -m pip uninstall -qq --disable-pip-version-check --yes $(OTHER)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(RUNTIME),demo]'
	touch $@

$(TEST): $(SERVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(RUNTIME),demo,dev]'
# KServe's classes check our answers; its own requirements conflict with ours.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps kserve
	touch $@

clean:
	rm -rf $(VENV) $(DEMO) .bench .stand-in
