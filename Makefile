# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JUDGE ?=
RUN ?= data/runs/demo

.PHONY: demo test fuzz local-model lab report check notebooks bench clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.test-installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

$(VENV)/.local-installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[local]'
	touch $@

ifeq ($(JUDGE),local)
demo: $(VENV)/.local-installed
	$(BIN)/workbench local fetch
	$(BIN)/workbench run data/dialogues --l1 local --l2 local --limit 40 --out data/runs/demo-local --fresh
	$(BIN)/workbench score data/runs/demo-local
	$(BIN)/workbench report data/runs/demo-local
else
demo: $(VENV)/.installed
	$(BIN)/workbench run data/dialogues --l1 cue --l2 ngram --out data/runs/demo --fresh
	$(BIN)/workbench score data/runs/demo
	$(BIN)/workbench report data/runs/demo
endif

test: $(VENV)/.test-installed
	$(BIN)/python -m pytest

fuzz: $(VENV)/.test-installed
	HYPOTHESIS_PROFILE=default $(BIN)/python -m pytest -m hypothesis

local-model: $(VENV)/.local-installed
	$(BIN)/workbench local fetch

lab: $(VENV)/.installed
	$(BIN)/jupyter lab notebooks

report: $(VENV)/.installed
	test -f $(RUN)/manifest.json || $(BIN)/workbench run data/dialogues --l1 cue --l2 ngram --out $(RUN)
	$(BIN)/workbench report $(RUN)

check: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

notebooks: $(VENV)/.test-installed
	$(BIN)/python tests/refresh_notebooks.py

bench: $(VENV)/.test-installed
	$(BIN)/python benchmarks/core.py

clean:
	rm -rf $(VENV) build *.egg-info
