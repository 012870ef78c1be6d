# Two commands do all the set-up: `make demo` and `make test`.  Each works alone on a fresh machine.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# One process per core.  Each takes a half of the files in order, so that tests share what was costly to make, and helps
# the other when it is done.
PYTEST := $(BIN)/python -m pytest -q -n auto --dist worksteal

.PHONY: demo test check package profile format clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "atlas-lp needs Python 3.11 or newer; name one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(READY)  ## write a synthetic trace and analyze it
	$(BIN)/atlas-lp demo --force -o demo

test: $(READY)  ## all tests but those that are marked slow
	$(PYTEST) -m "not slow"

check: $(READY)  ## what the gate runs: format, lint, types, docs, all tests, package; it ends with the coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -k current tests/test_docs.py tests/traces/test_trace_support.py
	$(PYTEST) --cov --cov-report=
	$(MAKE) --no-print-directory package
	$(BIN)/coverage report

package: $(READY)  ## build sdist and wheel from a copy, so that nothing is left in the checkout, and check what they say
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	git ls-files --cached --others --exclude-standard --deduplicate -z \
	  | tar --create --null --files-from=- | tar --extract --directory="$$copy" && \
	$(BIN)/python -m build --no-isolation --outdir "$$copy/packages" "$$copy" > "$$copy/log" 2>&1 || { cat "$$copy/log"; exit 1; }; \
	$(BIN)/twine check --strict "$$copy"/packages/*

profile: $(READY)  ## where the time of the demo's analysis goes, without compiling: the second run is measured
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	$(BIN)/atlas-lp demo -o "$$folder/demo" --no-cache > /dev/null && \
	$(BIN)/python -m cProfile -o "$$folder/profile" -m atlas_lp analyze "$$folder/demo/traces" --no-cache --json > /dev/null && \
	$(BIN)/python -c 'import pstats, sys; pstats.Stats(sys.argv[1]).sort_stats("cumulative").print_stats(60)' "$$folder/profile"

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist demo *.egg-info .mypy_cache .ruff_cache .hypothesis .coverage
