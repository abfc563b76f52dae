# Two commands do everything on a machine that has Python 3.11 or later: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
TYPES := build/types/softmax_bottleneck

.PHONY: demo test browser lint types pytest notebooks docs test-lowest clean

demo: .venv/installed
	$(BIN)/bottleneck demo --out demo
	@echo "To use the command 'bottleneck' in this shell: source $(BIN)/activate"

test: browser lint types pytest

# Tests of pages need one; where none is found, Playwright or apt installs it.
browser: .venv/installed
	$(BIN)/python tests/report/browser.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy wants the import name on disk: a tree of links, laid out as pyproject.toml's package map lays it out. With the
# package it checks what a user writes.
types: build/types .venv/installed
	MYPYPATH=build/types:tests/house $(BIN)/mypy -p softmax_bottleneck -m user

build/types: bottleneck
	rm -rf build/types && mkdir -p $(TYPES)
	ln -s $(CURDIR)/bottleneck/* $(CURDIR)/cli $(CURDIR)/figures $(TYPES)/

# One thread for each process, because tests run in parallel.
pytest: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

# The notebooks are executed once, where the documentation shows them: at most two minutes a cell, two at a time.
notebooks: .venv/installed-docs
	rm -rf docs/notebooks && mkdir docs/notebooks && cp notebooks/*.ipynb docs/notebooks/
	OMP_NUM_THREADS=1 timeout 900 $(BIN)/python -m pytest --nbmake --nbmake-timeout=120 --overwrite -n 2 docs/notebooks

# Pages in build/docs, read in any browser without a server; then they are checked: links, code blocks, search.
docs: notebooks
	rm -rf build/docs && $(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html docs build/docs
	$(BIN)/python -m pytest docs/checks

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,docs]'
	touch $@

# The oldest versions that pyproject.toml allows.
test-lowest: .venv-lowest/installed
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile

.venv-lowest/installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e '.[test]'
	touch $@

clean:
	rm -rf .venv .venv-lowest build dist demo docs/notebooks *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
