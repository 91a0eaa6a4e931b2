# Each target does all its own set-up: python3.11, pip and make are enough; a C++ compiler makes the losses fast.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-pure check bench docs clean

# A folder changes when a file is added or removed: an editable install then has to learn of it.
$(VENV)/installed: pyproject.toml constraints.txt CMakeLists.txt $(wildcard csrc/*) $(shell find src -type d -not -name __pycache__)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/installed  ## train on the metric, before and after
	$(BIN)/python docs/examples/segment_digits.py

test: $(VENV)/installed  ## all tests, with the kernels
	$(BIN)/python -m pytest

test-pure:  ## install without a compiler on the PATH and run the laws on the pure-torch path
	$(PYTHON) -m venv build/pure
	PATH="$(CURDIR)/build/pure/bin" build/pure/bin/pip install -q -c constraints.txt '.[dev]'
	build/pure/bin/python -c "from evalgrad import _native; assert _native.library is None"
	build/pure/bin/python -m pytest tests -k "not test_engines or opcheck"

check: $(VENV)/installed  ## format, lint, types, spelling, then tests and doctests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python -m pytest

bench: $(VENV)/installed  ## cost against cross-entropy; writes benchmarks/results/*.json
	$(BIN)/python benchmarks/lovasz.py
	$(BIN)/python benchmarks/loss_max_pooling.py
	$(BIN)/python benchmarks/smooth_topk.py
	$(BIN)/python benchmarks/direct_loss.py
	$(BIN)/python benchmarks/s_measures.py

docs: $(VENV)/installed  ## regenerate what is generated in README and docs
	$(BIN)/evalgrad reproduce loss_max_pooling/figures-1-2 --docs docs/papers

clean:
	rm -rf $(VENV) build
