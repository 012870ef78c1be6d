# Two commands do all the set-up: `make demo` and `make test`.  Each works alone on a fresh machine.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test check format clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "atlas-lp needs Python 3.11 or newer; name one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(READY)  ## write a synthetic trace and analyze it
	$(BIN)/atlas-lp demo --force -o demo

test: $(READY)  ## all tests
	$(BIN)/python -m pytest -q

check: $(READY)  ## format, lint, types, tests (which run the commands of the docs)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist demo *.egg-info .mypy_cache .ruff_cache .hypothesis
