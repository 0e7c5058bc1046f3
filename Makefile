PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.docs-installed
# Files in their own order: by their number of tests a dear one with a single test came last, alone.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: setup demo test test-ci test-all test-wheel test-oldest lint structure docs notebooks bench reproduce reproduce-quick claims clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo 'Installing into .venv, which takes a minute or two.'
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[cli,excel,parquet,plot,test,zstd]'
	touch $(STAMP)

demo: $(STAMP)
	@echo 'Compiling and fitting, which takes some seconds.'
	@$(BIN)/sparsehtp demo --out demo_output
	@echo 'For commands of your own first: source .venv/bin/activate'

test: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not later"

test-ci: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL)

# Some tests of the wheel as it is installed, in an environment of its own; TESTS names others.
test-wheel:
	$(PYTHON) tests/installed.py $(TESTS)

# The same with the least versions that pyproject.toml allows.
test-oldest:
	$(PYTHON) tests/installed.py --oldest $(or $(TESTS),tests/transforms tests/contracts \
	    tests/estimators/test_regressor.py tests/test_prove.py)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Rooms of the package and imports between them.
structure:
	@$(PYTHON) tests/structure.py

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $(DOCS_STAMP)

# The site, in build/site; a reference or link that leads nowhere, read from disk, is an error.
# A source archive holds no links.
docs: $(DOCS_STAMP)
	test -e docs/gallery || ln -s ../notebooks docs/gallery
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/links.py build/site

# Runs the notebooks and keeps their outputs.
notebooks: $(DOCS_STAMP)
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace notebooks/*.ipynb

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run core

# A figure of the papers by its name, as NAME=diht-fig1; without one, the names.
reproduce: $(STAMP)
	$(BIN)/python -m benchmarks.papers $(NAME)

# Every experiment at its small size, and the page of claims; SPARSEHTP_DATA names the folder of the real data sets.
reproduce-quick: $(STAMP)
	$(BIN)/python -m benchmarks.papers all --quick --page benchmarks/results/CLAIMS.md

# The same page from the results that are kept beside it, with SPARSEHTP_DATA too; nothing is computed.
claims: $(STAMP)
	$(BIN)/python -m benchmarks.papers all --again --page benchmarks/results/CLAIMS.md

clean:
	rm -rf .venv build demo_output reproduced tests/.programs
