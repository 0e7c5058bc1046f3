PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-all lint structure bench reproduce-quick claims clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli,plot,test]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/sparsehtp demo --out demo_output

# Compiling is most of the time of the tests, so this target compiles with few optimisations; test-all compiles in full.
test: $(STAMP)
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Rooms of the package and imports between them.
structure:
	@$(PYTHON) tests/structure.py

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run core

# Every experiment at its small size, and the page of claims; SPARSEHTP_DATA names the folder of the real data sets.
reproduce-quick: $(STAMP)
	$(BIN)/sparsehtp reproduce all --quick --page benchmarks/results/CLAIMS.md

# The same page from the results that are kept beside it; nothing is computed.
claims: $(STAMP)
	$(BIN)/sparsehtp reproduce all --again --page benchmarks/results/CLAIMS.md

clean:
	rm -rf .venv build demo_output reproduced tests/.jax_cache
