# `make help` lists the targets, each with the line of two hashes above it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
# Number of test processes: some only wait for servers, so there are more than cores.
JOBS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
DEMO := .demo
# Modules are compiled when they are first imported; pip would compile all of them.
export PYTHONDONTWRITEBYTECODE =
# Scripts that import onnxruntime before foretell.
export ORT_DISABLE_TELEMETRY = 1
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
# Packages of locks/ are checked by their sums and are complete. torch comes in the build that pip's
# configuration offers; TORCH='--require-hashes --requirement locks/torch.txt' takes the one of PyPI.
LOCKED = $(PIP) install --no-compile --no-deps --require-hashes $(addprefix --requirement locks/,$(addsuffix .txt,$(1)))
TORCH ?= --constraint constraints.txt torch
LOCKS := $(wildcard locks/*.txt)
# The GPU build of onnxruntime where an NVIDIA driver is loaded.
RUNTIME ?= $(if $(wildcard /proc/driver/nvidia/version),gpu,cpu)
# The two builds overwrite each other's files: uninstall one before installing the other.
OTHER := $(if $(filter gpu,$(RUNTIME)),onnxruntime,onnxruntime-gpu)
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --durations 30
SERVE := $(VENV)/.serve-$(RUNTIME)
TEST := $(VENV)/.test-$(RUNTIME)
PUBLISHING := $(VENV)/publishing
CHECKERS := $(VENV)/checkers

.PHONY: serve replay test test-all lint check-files types audit demo help bench gpu-check mutants notebook reference docs lock package wheels changes lowest \
	page-assets page-pictures clean
.DELETE_ON_ERROR:

## from nothing to a server with three demo models and a ledger, on PORT
serve: $(SERVE) demo
	FORETELL_LEDGER=$${FORETELL_LEDGER-sqlite:///$(DEMO)/ledger.db} exec $(BIN)/foretell serve --models $(DEMO)/repository --port $(PORT)

## the demo's data, models and bundles, in .demo/
demo: $(SERVE)
	@$(BIN)/foretell demo --out $(DEMO)

## replay three weeks of hourly forecasts and actual values through the server of `make serve`; its page shows what came true
replay: $(SERVE) demo
	$(BIN)/python -m foretell.demo.replay --folder $(DEMO) --url localhost:$(PORT)

## the tests, except slow ones
test: $(TEST)
	$(PYTEST) -m "not slow"

## every test
test-all: $(TEST)
	$(PYTEST)

## ruff: faults and format
lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

## faults of shell scripts, the Dockerfile, pipelines and their schemas; needs no network but for its tools
check-files: $(CHECKERS)/.done
	$(CHECKERS)/bin/shellcheck .ci/* deploy/*.sh
	$(CHECKERS)/bin/hadolint Dockerfile
	$(CHECKERS)/bin/zizmor --offline --no-progress --quiet --persona pedantic --strict-collection .github
	$(CHECKERS)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(CHECKERS)/bin/check-jsonschema --builtin-schema vendor.renovate renovate.json

## mypy, strict
types: $(TEST)
	$(BIN)/mypy

## look up known vulnerabilities of all pinned versions on PyPI; fails without access to its JSON API
audit: $(PUBLISHING)/.done
	$(PUBLISHING)/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

## this list
help:
	@awk '/^## / { text = substr($$0, 4) } \
		/^[a-z-]+:/ && text { sub(/:.*/, ""); printf "make %-16s%s\n", $$0, text; text = "" }' \
		$(firstword $(MAKEFILE_LIST))

# CASE is one or more cases of `python -m bench --help`; DATA is a folder of data that some need.
## measure: CASE="server graphs", BASELINE="COMMIT …" for earlier commits beside this one
bench: $(TEST)
	$(BIN)/python -m bench $(CASE) $(if $(BASELINE),--baseline $(BASELINE)) $(if $(DATA),--data $(DATA)) \
		$(if $(SECONDS),--seconds $(SECONDS))

## check and time the demo's models on every NVIDIA GPU
gpu-check: $(TEST) demo
	for name in $(notdir $(wildcard $(DEMO)/checkpoints/*)); do \
		$(BIN)/foretell verify $(DEMO)/repository/$$name/1 --checkpoint $(DEMO)/checkpoints/$$name \
			--data $(DEMO)/greensboro.csv --device cuda --timings || exit; \
	done

## take the pictures of docs/guides/page.md; needs chromium
page-pictures: $(TEST) demo
	PAGE_PICTURES_OF=$(DEMO)/repository $(BIN)/python -m pytest tests/page/test_tasks.py -k "not keyboard"

## measure the tests by 200 small faults in the product, drawn by SEED, at COMMIT; resumable, takes hours
mutants: $(TEST)
	$(BIN)/python -m bench.mutants $(if $(COMMIT),--commit $(COMMIT)) --seed $(or $(SEED),0)

## run the client's notebook against the server of `make serve`; keeps what it prints
notebook: $(TEST)
	$(BIN)/python -m tests.docs.notebook

## write the pages of docs/reference/ from the code
reference: $(TEST)
	$(BIN)/python -m tests.docs.reference

## build the site of docs/ in site/; every link must lead somewhere
docs: $(PUBLISHING)/.done
	$(PUBLISHING)/bin/zensical build --strict --clean
	$(PUBLISHING)/bin/python -m tests.docs.llms site

$(VENV)/.venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foretell needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(SERVE): pyproject.toml constraints.txt $(LOCKS) $(VENV)/.venv
	rm -f $(VENV)/.serve-* $(VENV)/.test-*
	$(PIP) --quiet uninstall --yes $(OTHER)
	$(call LOCKED,serve-$(RUNTIME) train build)
	$(PIP) install --no-compile $(TORCH)
	$(PIP) install --no-compile --no-deps --no-build-isolation --editable .
	touch $@

$(TEST): $(SERVE)
	$(call LOCKED,dev)
	touch $@

# Tools for publishing, in an environment of their own.
$(PUBLISHING)/.done: locks/publish.txt $(VENV)/.venv
	$(PYTHON) -m venv $(PUBLISHING)
	$(PUBLISHING)/bin/python -m pip --quiet --disable-pip-version-check install --no-deps --require-hashes \
		--requirement locks/publish.txt
	touch $@

# Checkers of files that are not Python, in an environment of their own.
$(CHECKERS)/.done: locks/checkers.txt $(VENV)/.venv
	$(PYTHON) -m venv $(CHECKERS)
	$(CHECKERS)/bin/python -m pip --quiet --disable-pip-version-check install --no-deps --require-hashes \
		--requirement locks/checkers.txt
	touch $@

## write locks/ from constraints.txt and pyproject.toml, with the sums of wheels on PyPI
lock: $(PUBLISHING)/.done
	$(PUBLISHING)/bin/python -m locks

## build the packages, and check their contents, metadata and licences
package: $(PUBLISHING)/.done
	rm -rf dist
	$(PUBLISHING)/bin/hatchling build --directory dist
	$(PUBLISHING)/bin/twine check --strict dist/*
	$(PUBLISHING)/bin/check-wheel-contents dist/*.whl
	$(PUBLISHING)/bin/reuse lint --quiet || $(PUBLISHING)/bin/reuse lint
	@$(PUBLISHING)/bin/towncrier build --draft --version next > /dev/null

# PYTHONS='python3.11 python3.12 python3.13' are interpreters; PyPI's torch takes gigabytes for each.
## install the built wheel in clean environments of PYTHONS: a client, a server and training
wheels: package
	$(PYTHON) tests/installing.py dist/*.whl $(or $(PYTHONS),$(PYTHON))

# schemathesis needs newer libraries, and anyio's plugin another pytest.
## test bundle/, export/ and service/ with the lowest versions that pyproject.toml allows; half an hour
lowest: $(TEST)
	$(PYTHON) -m venv $(VENV)/lowest
	$(BIN)/python tests/lowest.py > $(VENV)/lowest/requirements.txt
	$(VENV)/lowest/bin/python -m pip --quiet --disable-pip-version-check install --no-compile \
		--requirement $(VENV)/lowest/requirements.txt --editable '.[cpu,fast,otel,storage,train]'
	$(VENV)/lowest/bin/python -m pytest -p no:anyio --numprocesses $(JOBS) --dist loadfile \
		--no-loadscope-reorder --ignore tests/service/test_schema.py tests/timeaxis tests/bundle tests/export tests/service

## the changelog that the lines in changes/ would give
changes: $(PUBLISHING)/.done
	@$(PUBLISHING)/bin/towncrier build --draft --version next

## fetch the libraries of the page from npm, as service/page/vendor/assets.json names them
page-assets: $(TEST)
	$(BIN)/python -m tests.page.assets

## remove the environment, the demo and packages for comparisons
clean:
	rm -rf $(VENV) $(DEMO) site .bench .stand-in .stand-in.lock
