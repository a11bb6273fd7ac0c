# `make demo` and `make test` work on a fresh machine with Python 3.11; everything they install goes into .venv.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test lint browser clean

demo: $(VENV)/.demo
	$(BIN)/traceparse load sample
	$(BIN)/traceparse report --out reports/sample.html

# Each worker gets one half in order and steals from the other's end, so that what a file's tests share is made once.
test: $(STAMP) browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

# The browser tests use the system's Chromium; where no package manager can bring it they skip and say so.
browser:
	@command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	  echo "no Chromium here: the browser tests will be skipped"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	@touch $@

$(STAMP): $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) build dist data/loaded .mypy_cache .ruff_cache .pytest_cache
