# The developer interface. Each target installs what it needs into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test test-oldest-triton lint bench docs docs-reference notebooks clean

quickstart: .venv/installed
	$(BIN)/kvsim run experiments/quickstart.yaml

test: .venv/installed-dev
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest -n auto -q --ignore=tests/kernels_interp --ignore=tests/kernels_static
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n auto -q tests/kernels_interp
	$(BIN)/python -m pytest -n auto -q tests/kernels_static

# What the oldest supported triton makes of the kernels: that version, and a numpy that its
# interpreter can take, before the installed ones.
test-oldest-triton: .venv/oldest-triton
	PYTHONPATH=.venv/oldest-triton $(BIN)/python -m pytest -n auto -q tests/kernels_static

lint: .venv/installed-dev
	$(BIN)/python -m ruff check --fix
	$(BIN)/python -m ruff format
	$(BIN)/python -m mypy

bench: .venv/installed
	$(BIN)/kvsim bench

# The site in build/docs/site, which opens without a server and a network.
docs: .venv/installed-docs
	$(BIN)/python docs/build.py

# The pages that are made from the code; a test says when they are behind it.
docs-reference: .venv/installed
	$(BIN)/python -m sim.reference docs/reference

notebooks: .venv/installed-dev
	$(BIN)/python tests/support/notebooks.py
	$(BIN)/python -m ruff format --check notebooks

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install -q -e '.[dev,kernels]'
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install -q -e '.[docs]'
	touch $@

.venv/oldest-triton: .venv/installed-dev
	$(BIN)/python -m pip install -q --no-deps --target $@ triton==3.6.0 "numpy<2.4"

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
