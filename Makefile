# `make demo` and `make test` need Python ≥ 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The plug-in of Docker where there is one, else the older program.
COMPOSE := $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
WORKERS ?= 4
# BASE=debian builds the image without an image registry: see deploy/docker/offline.sh.
ifeq ($(BASE),debian)
export BASE_IMAGE ?= squeak-dist-base
OFFLINE = PYTHON=$(BIN)/python deploy/docker/offline.sh
endif

.PHONY: help demo docs notebooks dist test lint test-slow constraints clean cluster cluster-demo cluster-down \
	bench bench-accuracy bench-table1

help:
	@echo "make demo       fit the sea-surface temperatures; maps and model in demo-output/"
	@echo "make test       lint, types and all tests that are not slow"
	@echo "make test-slow  the slow tests too"
	@echo "make lint       ruff and mypy"
	@echo "make cluster    a Dask cluster of containers; WORKERS=4, BASE=debian without a registry"
	@echo "make cluster-demo, make cluster-down   the demo on it; remove it with its data"
	@echo "make bench-accuracy   errors beside other methods on a folder of tables; DATA=folder of parquet"
	@echo "make bench-table1   every sampler measured, docs/table1.md; QUICK=--quick, DATA=folder of parquet"
	@echo "make bench      speed beside peers, growth, scaling, docs/benchmarks.md; QUICK=--quick"
	@echo "make docs       the documentation, in docs/_build/html"
	@echo "make notebooks  run the notebooks and compare what comes out with what they show"
	@echo "make dist       wheel and sdist, checked, in dist/"
	@echo "make clean      remove the environment and what demo and tests wrote"

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,docs,test,dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/squeak-dist demo --out demo-output

lint: $(INSTALLED)
	$(BIN)/ruff check squeak_dist tests
	$(BIN)/ruff format --check squeak_dist tests
	$(BIN)/mypy

# First what needs one process, side by side, while the image of the containers is built (minutes,
# the first time); then what starts worker processes and containers.
test: lint
	@$(BIN)/python tests/compose/containers.py >.image.log 2>&1 & image=$$!; set -x; \
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow and not cluster and not docker" -n auto --dist loadfile \
		--durations=15 || { kill $$image; exit 1; }; \
	wait $$image || cat .image.log; \
	$(BIN)/pytest -m "not slow and (cluster or docker)" --durations=25

test-slow: $(INSTALLED)
	$(BIN)/pytest

docs: $(INSTALLED)
	$(BIN)/python -m sphinx -W --keep-going -E docs docs/_build/html

notebooks: $(INSTALLED)
	$(BIN)/pytest tests/test_notebooks.py -m "slow or not slow" -q

dist: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*

cluster: $(if $(OFFLINE),$(INSTALLED))
	$(OFFLINE)
	$(COMPOSE) build scheduler
	$(COMPOSE) up --detach --no-build --scale worker=$(WORKERS)
	@$(COMPOSE) exec -T client python -c "$$WAIT" $(WORKERS)
	@$(COMPOSE) ps

# The client starts when scheduler and workers are healthy; this counts who registered.
define WAIT
import os, sys
from distributed import Client
with Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout=60) as client:
    client.wait_for_workers(int(sys.argv[1]), timeout=120)
    print(sys.argv[1], "workers at", os.environ["DASK_SCHEDULER_ADDRESS"])
endef
export WAIT

cluster-demo:
	$(COMPOSE) exec -T client squeak-dist demo --out /data/demo
	$(COMPOSE) exec -T client squeak-dist evaluate /data/demo/model.zarr /data/demo/test.parquet

cluster-down:
	$(COMPOSE) down --volumes --remove-orphans

# Without the folder of data the made rows alone are measured.
DATA ?= $(wildcard ../shared/data)
bench-accuracy: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/accuracy.py $(DATA) --out docs/accuracy-tables

bench: $(INSTALLED)
	$(BIN)/python benchmarks/bench.py $(QUICK) $(if $(DATA),--data $(DATA))

bench-table1: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/table1.py $(DATA) $(QUICK)

constraints: $(INSTALLED)
	$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) .image.log demo-output dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
