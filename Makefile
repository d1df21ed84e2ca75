# Everything a fresh machine with git, python3 (3.10 or newer) and make needs: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# a module is compiled when it is first imported: of most packages few ever are
INSTALL = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt

CORE = tests/kernels tests/estimators $(addprefix tests/test_,$(addsuffix .py,balance capture centers distributed functional \
       fuzz layouts losses memory package))

.PHONY: help demo test-core test test-fast test-full lint format dist bench clean

help:  ## the commands
	@grep -E '^[a-z-]+:.*##' Makefile | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/demo-is-ready  ## compare 10 small networks with and 10 without ordinal entropy (a minute or two)
	$(BIN)/ordinal-entropy compare linear --methods baseline,oe --seeds 10 --preset quick --out runs/demo

test: $(VENV)/test-is-ready  ## style, types, import directions, all fast tests
	@$(MAKE) --no-print-directory --jobs 2 lint test-fast

test-fast: $(VENV)/test-is-ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses 2 --dist worksteal

test-core: $(VENV)/test-is-ready  ## the regularizer, its kernels and the estimators alone, in a minute
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses 2 --dist worksteal $(CORE)

test-full: test $(VENV)/oracles-are-ready  ## everything: also the tests that take minutes, some of them on real data where ORDINAL_ENTROPY_DATA says it is
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow

lint: $(VENV)/test-is-ready
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/test-is-ready  ## rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dist: $(VENV)/test-is-ready  ## a wheel and an sdist in dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

bench: $(VENV)/test-is-ready  ## every benchmark, written to benchmarks/*.json
	for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench || exit 1; done

clean:  ## remove the environment and everything built
	rm -rf $(VENV) dist build src/*.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "ordinal-entropy needs Python 3.10 or newer; $(PYTHON) is `$(PYTHON) --version`. Try make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo-is-ready: $(BIN)/python pyproject.toml constraints.txt
	@echo "setting up $(VENV) (PyTorch is large: a minute or two)"
	$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/test-is-ready: $(BIN)/python pyproject.toml constraints.txt
	@echo "setting up $(VENV) (PyTorch is large: a minute or two)"
	$(INSTALL) --editable '.[test]'
	@touch $@

$(VENV)/oracles-are-ready: $(VENV)/test-is-ready
	$(INSTALL) --editable '.[test,oracles]'
	@touch $@
