# `make help` lists what there is to make: the line that begins with two hashes above each.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
# Processes that tests run in: some wait for servers, and leave a core to others.
JOBS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
DEMO := .demo
# What is imported is compiled once and kept, by the first who does; pip would compile all there is.
export PYTHONDONTWRITEBYTECODE =
# Scripts that import onnxruntime before foretell.
export ORT_DISABLE_TELEMETRY = 1
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
INSTALL = $(PIP) install --no-compile --constraint constraints.txt
# The GPU build of onnxruntime where an NVIDIA driver is loaded.
RUNTIME ?= $(if $(wildcard /proc/driver/nvidia/version),gpu,cpu)
# The two builds overwrite each other's files: one has to go before the other comes.
OTHER := $(if $(filter gpu,$(RUNTIME)),onnxruntime,onnxruntime-gpu)
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --durations 30
SERVE := $(VENV)/.serve-$(RUNTIME)
TEST := $(VENV)/.test-$(RUNTIME)
PUBLISHED := aft-pytorch linear-attention-transformer linformer local-attention performer-pytorch \
	reformer-pytorch rotary-embedding-torch routing-transformer sinkhorn-transformer \
	axial_positional_embedding CoLT5-attention einops einx frozendict hyper-connections loguru \
	mixture-of-experts product_key_memory

.PHONY: serve test test-all lint types audit demo help bench bench-accuracy bench-adopted bench-attention bench-batch bench-bulk \
	bench-calls bench-counts bench-exports bench-precision bench-request bench-server \
	bench-soak bench-stall bench-ties bench-endurance bench-many bench-wide gpu-check gpu-graphs gpu-overhead gpu-subjects gpu-workers mutants notebook \
	package changes lowest page-assets page-pictures clean
.DELETE_ON_ERROR:

## from nothing to a server with three demo models, on PORT
serve: $(SERVE) demo
	exec $(BIN)/foretell serve --models $(DEMO)/repository --port $(PORT)

## the demo's data, models and bundles, in .demo/
demo: $(SERVE)
	@$(BIN)/foretell demo --out $(DEMO)

## the tests but the slow ones
test: $(TEST)
	$(PYTEST) -m "not slow"

## every test
test-all: $(TEST)
	$(PYTEST)

## ruff: faults and format
lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

## mypy, strict
types: $(TEST)
	$(BIN)/mypy

## ask PyPI for known vulnerabilities of all pinned versions; fails where its JSON API cannot be reached
audit: $(TEST)
	$(INSTALL) pip-audit
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

## this list
help:
	@awk '/^## / { text = substr($$0, 4) } \
		/^[a-z-]+:/ && text { sub(/:.*/, ""); printf "make %-16s%s\n", $$0, text; text = "" }' \
		$(firstword $(MAKEFILE_LIST))

# Each writes its part of docs/benchmarks.md.
## measure the graphs; a few minutes
bench: $(TEST)
	$(BIN)/python -m bench.graphs

## measure adopted models next to NeuralForecast's own predict
bench-adopted: $(TEST)
	$(BIN)/python -m bench.adopted

## measure tables next to JSON
bench-bulk: $(TEST)
	$(BIN)/python -m bench.bulk

## measure 200 models where 20 fit; writes its part of docs/repository.md; about three minutes
bench-many: $(TEST)
	$(BIN)/python -m bench.many_models

# DATA is ETTh1.csv of the ETT data sets.
## measure forecasts of a million series, killed and on Ray, too; writes its part of docs/batch.md
bench-batch: $(TEST)
	$(BIN)/python -m bench.batch --data $(DATA)

## send good, refused, cut-off and hostile requests for ten minutes; fails if memory grows
bench-soak: $(TEST)
	$(BIN)/python -m bench.soak

## measure memory and answers under load; about ten minutes
bench-endurance: $(TEST)
	$(BIN)/python -m bench.endurance

## take the pictures of docs/page.md; needs chromium
page-pictures: $(TEST) demo
	PAGE_PICTURES_OF=$(DEMO)/repository $(BIN)/python -m pytest tests/page/test_tasks.py

## measure a request outside the model
bench-request: $(TEST)
	$(BIN)/python -m bench.request

## count the files and calls that one request passes; a minute; BEFORE="COMMIT …" counts those, too
bench-calls: $(TEST)
	$(BIN)/python -m bench.calls $(if $(BEFORE),--before $(BEFORE)) $(if $(DETAIL),--detail)

# What it takes may come from another machine.
## check and measure the demo's models on an NVIDIA GPU; writes docs/gpu.md
gpu-check: $(if $(wildcard $(DEMO)/gpu),$(TEST),gpu-subjects)
	$(BIN)/python -m bench.gpu $(DEMO)/gpu

## what gpu-check takes, made anew; without a GPU
gpu-subjects: $(TEST) demo
	$(BIN)/python -m bench.gpu.prepare $(DEMO)/gpu

## every graph on a stand-in for CUDA's libraries; about a quarter of an hour
gpu-graphs: $(TEST)
	$(BIN)/python -m bench.gpu.graphs

## measure what CUDA's sessions cost on that stand-in
gpu-overhead: $(TEST)
	$(BIN)/python -m bench.gpu.overhead

## measure a server of two HTTP workers before that stand-in; needs wrk; BEFORE="COMMIT …" prints all
gpu-workers: $(TEST)
	$(BIN)/python -m bench.gpu.workers $(if $(BEFORE),--before $(BEFORE))

## measure the tests by 200 small faults in the product, drawn by SEED, at COMMIT; hours; goes on
mutants: $(TEST)
	$(BIN)/python -m bench.mutants $(if $(COMMIT),--commit $(COMMIT)) --seed $(or $(SEED),0)

## measure int8 and half precision next to float32
bench-precision: $(TEST)
	$(BIN)/python -m bench.precision

## measure the memory of models of 862 channels and of 10,000 series; most of an hour
bench-wide: $(TEST)
	$(BIN)/python -m bench.wide

## run the client's notebook against the server of `make serve`; keeps what it prints
notebook: $(TEST)
	$(BIN)/python -m tests.docs.notebook

# DATA is the folder of the ETT data sets.
## train the published recipes on DATA; days, goes on where it was interrupted; writes docs/accuracy.md
bench-accuracy: $(TEST)
	$(BIN)/python -m bench.accuracy --data $(DATA)

# DATA is ETTh1.csv of the ETT data sets.
## compare the mechanisms of attention on DATA; hours, goes on where it was interrupted
bench-attention: $(TEST)
	$(BIN)/python -m bench.attention --data $(DATA)

## export a Transformer with each mechanism on four seeds; writes its part of docs/mechanisms.md; an hour
bench-exports: $(TEST)
	$(BIN)/python -m bench.mechanism_exports

## train heads of counts on levels that shift; writes its part of docs/intervals.md; minutes
bench-counts: $(TEST)
	$(BIN)/python -m bench.counts --write

## compare forecasts of flat histories alone and in batches; writes its part of docs/mechanisms.md; minutes
bench-ties: $(TEST)
	$(BIN)/python -m bench.ties --write

## measure the server next to others, which it installs in .bench/; needs wrk; BEFORE="COMMIT …" for itself
bench-server: $(TEST)
	$(BIN)/python -m bench.server $(if $(BEFORE),--before $(BEFORE)) $(if $(SECONDS),--seconds $(SECONDS))

## measure how long GET /healthz waits while hostile and large requests come in
bench-stall: $(TEST)
	$(BIN)/python -m bench.stall

$(VENV)/.venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foretell needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(SERVE): pyproject.toml constraints.txt $(VENV)/.venv
	rm -f $(VENV)/.serve-* $(VENV)/.test-*
	$(PIP) --quiet uninstall --yes $(OTHER)
	$(INSTALL) --editable '.[$(RUNTIME),fast,demo]'
	touch $@

$(TEST): $(SERVE)
	$(INSTALL) --editable '.[$(RUNTIME),fast,demo,dev]'
# KServe's classes check our answers, and Nixtla's client asks for some; their own requirements
# conflict with ours.
	$(INSTALL) --no-deps kserve nixtla
# Published implementations of attention, which ours give the same numbers as.
	$(INSTALL) --no-deps $(PUBLISHED)
	touch $@

# Into an environment of their own: what they need is none of foretell's business.
PUBLISHING := $(VENV)/publishing
$(PUBLISHING)/.done: constraints.txt $(TEST)
	$(PYTHON) -m venv $(PUBLISHING)
	$(PUBLISHING)/bin/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt \
		check-wheel-contents hatchling reuse towncrier twine
	touch $@

## build what would be published, and check it: contents, metadata, licences
package: $(PUBLISHING)/.done
	rm -rf dist
	$(PUBLISHING)/bin/hatchling build --directory dist
	$(PUBLISHING)/bin/twine check --strict dist/*
	$(PUBLISHING)/bin/check-wheel-contents dist/*.whl
	$(PUBLISHING)/bin/reuse lint --quiet || $(PUBLISHING)/bin/reuse lint
	@$(PUBLISHING)/bin/towncrier build --draft --version next > /dev/null

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

## forget the environment, the demo and what was installed to compare
clean:
	rm -rf $(VENV) $(DEMO) .bench .stand-in .stand-in.lock
