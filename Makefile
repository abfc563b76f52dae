# Two commands do everything on a machine that has Python 3.11 or later: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
TYPES := build/types/softmax_bottleneck

.PHONY: demo test lint types pytest clean

demo: .venv/installed
	$(BIN)/bottleneck demo --out demo

test: lint types pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy wants the import name on disk: a tree of links, laid out as pyproject.toml's package map lays it out.
types: .venv/installed
	rm -rf build/types && mkdir -p $(TYPES)
	ln -s $(CURDIR)/bottleneck/* $(CURDIR)/cli $(CURDIR)/figures $(TYPES)/
	MYPYPATH=build/types $(BIN)/mypy -p softmax_bottleneck

pytest: .venv/installed
	$(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf .venv build dist demo *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
