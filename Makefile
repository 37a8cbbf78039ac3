# `make demo` and `make test` need Python 3.11 or newer and make; they set up .venv themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo-run

.PHONY: demo test test-quick check docs dist style types habits faults bench clean

demo: $(VENV)/.installed
	$(BIN)/unskew demo --out $(DEMO) --force

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n auto --durations=10

# the tests that a change concerns, in a minute and a half
test-quick: $(VENV)/.installed-dev
	$(BIN)/python tools/quick_tests.py

check: $(VENV)/.installed-dev
	+$(MAKE) --no-print-directory --jobs 2 style types habits

# the documentation site, for a browser: site/index.html
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

# wheel and source archive in dist/, the wheel tried in an environment of its own
dist: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python tools/try_wheel.py dist

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy
	MYPYPATH=tools/site $(BIN)/mypy tools/site

habits:
	$(BIN)/python -m pytest -q tests/habits/test_imports.py tests/habits/test_docs.py tests/habits/test_site.py

# faults put into a copy of the sources, one at a time: which of them do tests kill? NAME=comparing runs some
faults: $(VENV)/.installed-dev
	$(BIN)/python tests/faults/run.py $(if $(NAME),--name $(NAME))

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench.py

clean:
	rm -rf $(VENV) $(DEMO) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist site

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit("unskew needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[serve]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@
