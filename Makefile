# `make serve`: from nothing to a server with three demo models. `make test`: the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
DEMO := .demo
# The GPU build of onnxruntime where an NVIDIA driver is loaded.
RUNTIME ?= $(if $(wildcard /proc/driver/nvidia/version),gpu,cpu)

.PHONY: serve test lint types demo bench clean
.DELETE_ON_ERROR:

serve: $(VENV)/.serve demo
	exec $(BIN)/foretell serve --models $(DEMO)/repository --port $(PORT)

demo: $(VENV)/.serve
	@$(BIN)/foretell demo --to $(DEMO)

test: $(VENV)/.test
	$(BIN)/python -m pytest

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

$(VENV)/.venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foretell needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.serve: pyproject.toml constraints.txt $(VENV)/.venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(RUNTIME),demo]'
	touch $@

$(VENV)/.test: $(VENV)/.serve
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(RUNTIME),demo,dev]'
# KServe's classes check our answers; its own requirements conflict with ours.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps kserve
	touch $@

clean:
	rm -rf $(VENV) $(DEMO)
