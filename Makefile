# `make demo` and `make test` need Python ≥ 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help demo test lint test-slow constraints clean

help:
	@echo "make demo       fit the sea-surface temperatures; maps and model in demo-output/"
	@echo "make test       lint, types and all tests that are not slow"
	@echo "make test-slow  the slow tests too"
	@echo "make lint       ruff and mypy"
	@echo "make clean      remove the environment and what demo and tests wrote"

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,test,dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/squeak-dist demo --out demo-output

lint: $(INSTALLED)
	$(BIN)/ruff check squeak_dist tests
	$(BIN)/ruff format --check squeak_dist tests
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -m "not slow"

test-slow: $(INSTALLED)
	$(BIN)/pytest

constraints: $(INSTALLED)
	$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
