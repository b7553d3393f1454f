# Every target calls `setup`, which does nothing when requirements.lock and pyproject.toml have not changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
SCENARIO ?= wheel
MINUTES ?= 60
# A lock never takes a release younger than this many days: time for a bad one to be noticed and withdrawn.
COOLDOWN_DAYS := 7

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak lint format lock proto bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install everything into .venv/ (automatic; free when nothing changed)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "mainspring needs Python 3.11 or newer; $(PYTHON) is older. Try: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments; install its venv package (on Debian: python3-venv)." >&2; exit 1; }
	@echo "setup: making $(VENV) and installing the pinned packages (first time: about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## everything at work, live, a leader killed after 15 s; make demo SECONDS=30 ends by itself
	@$(BIN)/mainspring demo $(if $(SECONDS),--seconds $(SECONDS))

test: setup ## all tests, on a real Postgres, etcd and Kafka started by the suite
	@$(BIN)/python -m pytest

soak: setup ## random faults over random traffic: make soak MINUTES=60 SEED=7 (no SEED: a new one)
	@$(BIN)/python -m tests.robustness --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

lint: setup ## ruff, mypy --strict, import-linter, every named query used
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m mainspring.schema.queries check

format: setup ## rewrite the code in the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: setup ## resolve requirements.lock anew from pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--exclude-newer "$(COOLDOWN_DAYS) days" --extra local --group dev --upgrade \
		pyproject.toml --output-file requirements.lock

# The oldest release we support: generated code serves newer runtimes, not older ones.
proto: setup ## generate the etcd messages anew from mainspring/etcd/wire.proto
	@$(BIN)/uv tool run --from grpcio-tools==1.76.0 python -m grpc_tools.protoc \
		--proto_path . --python_out . --pyi_out . mainspring/etcd/wire.proto

bench: setup ## run one benchmark: make bench SCENARIO=wheel
	@$(BIN)/python -m bench $(SCENARIO)

clean: ## remove .venv, caches and the local stack's data
	@if [ -d .mainspring ] && [ -x $(BIN)/mainspring ]; then $(BIN)/mainspring local down; fi
	@rm -rf $(VENV) .mainspring .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
