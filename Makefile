# Swingpool: `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz test-vllm test-vllm-quick bench-quick verify format generate e2e e2e-quick e2e-clients e2e-istio cluster-up cluster-down image lock clean

help: ## Show this help.
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  \033[36m%-14s\033[0m %s\n", $$1, $$2}'

$(STAMP): requirements/dev.lock pyproject.toml
	@echo "==> setting up $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP) ## Make .venv with everything that development needs.

demo: $(STAMP) ## Bring up a real cluster, install, serve load, flip workers; report in build/demo/.
	@$(BIN)/python -m e2e.demo

test: $(STAMP) ## Run unit tests, and integration tests against a real API server.
	@$(BIN)/python -m tools.compiled picker > /dev/null || echo "==> the router is tested in plain Python"
	@$(BIN)/python -m pytest

e2e: $(STAMP) ## Run the whole system on real nodes, with failures, under load.
	@$(BIN)/python -m e2e

e2e-quick: $(STAMP) ## A short slice of the e2e.
	@$(BIN)/python -m e2e --quick

fuzz: $(STAMP) ## Look for requests that crash or fool the router: 100,000 cases and more, some minutes.
	@$(BIN)/python -m pytest tests/fuzz --hypothesis-profile=fuzz --timeout=3600 --durations=0

e2e-clients: $(STAMP) ## Run the openai package, curl and aiperf against a real cluster (installs them, cached).
	@$(BIN)/python -m e2e clients

e2e-istio: $(STAMP) ## Run Istio's control plane before the picker on a real cluster (builds it, ten minutes, cached).
	@$(BIN)/python -m e2e behind-istio

test-vllm: $(STAMP) ## Check what is claimed about vLLM on real vLLM servers without a GPU (installs them, cached).
	@$(BIN)/python -m e2e.vllm

test-vllm-quick: $(STAMP) ## A short slice of it.
	@$(BIN)/python -m e2e.vllm --quick

bench-quick: $(STAMP) ## Run every benchmark in its quick form.
	@for file in $$(grep -l '^if __name__' benchmarks/*.py); do \
	  $(BIN)/python -m benchmarks.$$(basename $$file .py) --quick; \
	done

verify: $(STAMP) ## Check format, lint, types, borders, generated files and file sizes.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tools.check_generated
	@$(BIN)/python -m tools.check_size

format: $(STAMP) ## Format the code and fix what can be fixed.
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

generate: $(STAMP) ## Write the generated files anew (CRD, its copies, field reference, install manifest).
	@$(BIN)/python -m tools.generate
	@$(BIN)/python -m tools.manifests

cluster-up: $(STAMP) ## Bring up the development cluster and leave it running.
	@$(BIN)/python -m e2e.cluster up

cluster-down: $(STAMP) ## Take the development cluster down.
	@$(BIN)/python -m e2e.cluster down

image: $(STAMP) ## Build the image, and load it into the development cluster if that is up.
	@$(BIN)/python -m e2e.cluster image

lock: $(STAMP) ## Pin the dependencies anew.
	@tools/lock.sh

clean: ## Remove what was built here; caches outside the tree stay.
	@rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
