# Everything is done through these targets; `make` alone lists them.
#
#   VENV    where the virtual environment lies        (make VENV=/elsewhere test)
#   PYTHON  interpreter to make it with, 3.11 or newer (make PYTHON=python3.12 test)
#   ARGS    more arguments for pytest                  (make test ARGS="-k tar -x")
#   WORKERS processes that run tests                   (make test WORKERS=8)

VENV ?= .venv
PYTHON ?=
ARGS ?=
# processes that run tests at the same time; the tests are independent of one another
WORKERS ?= 2

BIN := $(VENV)/bin
BOOTSTRAP := PYTHON="$(PYTHON)" sh scripts/bootstrap.sh "$(VENV)"
PACKAGES := shards packer stager loaders shardferry
CHECKED := $(PACKAGES) demo scripts tests benchmarks

# a temporary directory of its own: sessions that share one clean up under each other's feet
RUN_TESTS = scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && $(BIN)/pytest -q --basetemp="$$scratch/tests"

# tests and demo must see the installed package: Python then leaves the current directory out of its path
export PYTHONSAFEPATH := 1
# TensorFlow otherwise greets on stderr, whatever is run
export TF_CPP_MIN_LOG_LEVEL ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow check lint format types layers docs command-docs \
	dev clean clean-demo clean-venv installed requirements

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: installed ## pack, stage and train on a real dataset, step by step (the first run downloads 21 MB)
	@env -u PYTHONSAFEPATH $(BIN)/python demo/run.py

test: installed ## the everyday tests, on the installed package (under 5 minutes)
	@$(RUN_TESTS) -n $(WORKERS) -m "not slow" $(ARGS)

test-slow: installed ## the slower tests
	@$(RUN_TESTS) -m "slow and not ceph and not s3 and not ray and not faults and not uml and not nfs" $(ARGS)

check: lint types layers docs ## everything that needs no run: style, types, layers, docs

lint: requirements ## style: ruff check and ruff format --check
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)

format: requirements ## let ruff format and mend what it can
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --fix $(CHECKED)

types: requirements ## mypy --strict
	$(BIN)/mypy
	$(BIN)/mypy demo scripts

layers: requirements ## who may import whom (import-linter)
	PYTHONSAFEPATH= $(BIN)/lint-imports --no-logo

docs: installed ## links, options and examples in the documentation
	@env -u PYTHONSAFEPATH $(BIN)/python scripts/check_docs.py

command-docs: installed ## write docs/commands.md anew from the programs' help texts
	@env -u PYTHONSAFEPATH $(BIN)/python scripts/generate_command_docs.py

dev: ## install this checkout editable, for development
	@$(BOOTSTRAP) editable

clean: ## remove caches and build outputs
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find $(PACKAGES) demo scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

clean-demo: ## remove what the demo downloaded and made
	chmod -R u+w .demo 2>/dev/null || true
	rm -rf .demo

clean-venv: ## remove the virtual environment
	rm -rf "$(VENV)"

# not listed by help: what the targets above stand on

installed:
	@$(BOOTSTRAP) installed

requirements:
	@$(BOOTSTRAP) any

include tests/ceph/ceph.mk
include tests/s3/s3.mk
include tests/interop/interop.mk
include tests/datasets/datasets.mk
include tests/ray/ray.mk
include tests/faults/faults.mk
include benchmarks/bench.mk
