# make preflight   set up ./.venv and print the explained report of this machine
# make test        set up and pass all tests (PREFLIGHT_REAL=0 leaves out the real torch)
# Needs python3 (3.8 or later) with venv, and make. Another Python: make PYTHON=python3.11 ...

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
SOURCES := $(shell find src compat -type f -not -path '*/__pycache__/*') pyproject.toml hatch_build.py

.PHONY: preflight test lint format cases bench peers docs clean python

# A verdict is not a failure of make: 75 and 78 say what the report says.
preflight: $(VENV)/.ready
	@$(VENV)/bin/preflight --explain; code=$$?; \
	case $$code in 75|78) exit 0;; *) exit $$code;; esac

test: python
	@$(PYTHON) tools/test.py

lint: python
	@$(PYTHON) tools/test.py lint

# Environments of described cases, and what preflight says about each.
cases: $(VENV)/.ready
	@$(RUN) -m tests.cases_table

# Start-up times against `python -c pass` and `import torch`; BENCH="--torch-venv DIR --runs N".
bench: $(VENV)/.ready
	@$(RUN) tests/bench.py $(BENCH)

# The same scenarios, judged by other tools.
peers: $(VENV)/.ready
	@$(RUN) tests/peers/table.py

# The pages that are generated from the rules and the matrix.
docs: $(VENV)/.ready
	@$(RUN) tools/docs.py

format: python
	@$(PYTHON) tools/test.py format

clean:
	rm -rf .venv .venvs dist build .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready: $(SOURCES) | python
	@$(PYTHON) tools/venvs.py $(VENV)
	@touch $@

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || { \
	echo "$(PYTHON) is missing or older than 3.8; choose another: make PYTHON=python3.11 ..." >&2; \
	exit 2; }
