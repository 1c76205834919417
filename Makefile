PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test check soak bench load docs dist smoke clean
install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# Without their dependencies: they would replace the torch that was just installed.
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps torchvision timm
	# Compile the kernels now, so that the first prediction does not wait for it.
	$(BIN)/python -c 'import memo_tta.views.crop_kernels, memo_tta.views.augmix_kernels'
	@touch $@

demo: install
	$(BIN)/memo demo

test: install
	$(BIN)/pytest -n 2

# Style, types, layers, spelling and public names.
check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/pytest tests/test_public_names.py

# The long form of the property tests: many more examples than `make test`.
soak: install
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest -n 2

bench: install
	$(BIN)/memo bench

# The service at twice its capacity, with slow connections and hostile requests, on loopback: about four minutes.
load: install
	$(BIN)/python -m tests.service.load

# The documentation as a site in site/; a broken link is an error. The reference pages are written from the code.
# Not --quiet: with it, --strict overlooks warnings.
docs: install
	$(BIN)/python -m studies.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Wheel and sdist in dist/, with their metadata checked.
dist: install
	rm -rf dist
	$(BIN)/pip install --quiet --disable-pip-version-check twine
	$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null
	$(BIN)/twine check --strict dist/*

# The wheel in a fresh environment without extras: what runs, and what asks for an extra.
smoke: dist
	$(PYTHON) tests/wheel_smoke.py dist/*.whl

clean:
	rm -rf .venv dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
