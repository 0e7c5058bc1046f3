PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.docs-installed

.PHONY: setup demo test test-ci test-all test-oldest lint structure docs notebooks bench reproduce reproduce-quick claims clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo 'Installing into .venv, which takes a minute or two.'
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[cli,parquet,plot,test]'
	touch $(STAMP)

demo: $(STAMP)
	@echo 'Compiling and fitting, which takes some seconds.'
	@$(BIN)/sparsehtp demo --out demo_output
	@echo 'For commands of your own first: source .venv/bin/activate'

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not later"

test-ci: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Tests with the least versions that pyproject.toml allows, in an environment of their own.
test-oldest:
	test -x build/oldest/bin/python || $(PYTHON) -m venv build/oldest
	sed -n '/^dependencies/,/^parquet/p; /^plot/p' pyproject.toml | grep -oE '[a-z-]+>=[0-9.]+' | sed 's/>=/==/' > build/oldest/least.txt
	build/oldest/bin/python -m pip install --quiet -e '.[cli,plot]' beartype chex hypothesis pytest statsmodels -c build/oldest/least.txt
	build/oldest/bin/python -m pytest -m "not slow" tests/transforms tests/contracts \
	    tests/estimators/test_regressor.py tests/test_prove.py

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
docs: $(DOCS_STAMP)
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

# The same page from the results that are kept beside it; nothing is computed.
claims: $(STAMP)
	$(BIN)/python -m benchmarks.papers all --again --page benchmarks/results/CLAIMS.md

clean:
	rm -rf .venv build demo_output reproduced tests/.programs
