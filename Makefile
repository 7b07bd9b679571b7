# Every command sets up what it needs in `.venv`; nothing is installed twice.
#   make chat      one answer from the bundled model (PROMPT="..." asks another, PROMPT= converses)
#   make test      builds, and runs the tests that prove every class of thing once
#   make thorough  everything: all tests and lints, sanitizers, the wheel, soaks; about an hour
#   make check     Python lint and the tests of the API: a minute, while you work
#   make lint native native-sanitize docs pytest coverage wheel wheels bench clean   the parts
#   make soak soak-opencl soak-sanitize SECONDS=600   clients that behave badly
#   make mutations-sanitize EXAMPLES=2000   broken model files
#   make fuzz failing-calls   broken files, guided by what is reached; each call of the system fails
#   make ray       several engines on Ray Serve, in an environment of their own
#   make frameworks   clients that need older packages, in an environment of their own
#   make converter    files of llama.cpp's own converter, in an environment with torch
#   make opencl       models on Intel's OpenCL driver for processors, in an environment with it (1 GB)

PROMPT = Tell me a story about a fox called Rosa.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# What `make pytest` runs beyond a usual run: all, none, or an eighth such as 3/8.
THOROUGH ?= all
PYTEST_ARGS ?=
# The quarter of the tests of kernels that runs: 0/4 to 3/4, or all of them.
KERNEL_SHARE ?= 0/1

export PROMPT
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
ifneq ($(shell command -v ccache),)
export CMAKE_CXX_COMPILER_LAUNCHER := ccache
# The core is compiled once for all build directories and clones with the same options.
export CCACHE_BASEDIR := /
export CCACHE_NOHASHDIR := 1
export CCACHE_SLOPPINESS := pch_defines,time_macros
# One name of the compiler: ccache takes c++, which CMake prefers, and g++ for different compilers.
ifneq ($(shell command -v g++),)
export CXX
endif
endif

NATIVE_SOURCES := $(shell find native -type f -not -path 'native/tests/*')
# The library, the native tests and clang-tidy use one build directory.
NATIVE = build/native
CMAKE = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake
CMAKE_OPTIONS = -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja"
# Builds and tests beside each other: the Python tests, which wait for each other, come first.
BESIDE = nice -n 10

.PHONY: chat test thorough check dev compile configure lint lint-python lint-native tidy format native native-sanitize \
  native-aarch64 docs pytest ray frameworks converter opencl coverage wheel wheels soak soak-sanitize soak-address \
  soak-opencl \
  soak-thread mutations-sanitize failing-calls fuzz bench clean
.DELETE_ON_ERROR:

chat: $(VENV)/installed
	@if [ -n "$$PROMPT" ]; then $(BIN)/aiomlc chat -p "$$PROMPT" </dev/null; else $(BIN)/aiomlc chat; fi

test: dev
	$(MAKE) -j2 native pytest THOROUGH=none KERNEL_SHARE=0/4

# All that fails is reported.
thorough: dev
	$(MAKE) -k -j2 lint native native-sanitize docs wheel pytest REPEAT=--strict; status=$$?; \
	  $(MAKE) -k frameworks ray converter opencl failing-calls fuzz mutations-sanitize soak soak-opencl soak-sanitize && exit $$status

check: lint-python
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --thorough none tests/unit

dev: $(VENV)/dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The build tools live in the environment, so that a rebuild compiles only what changed. Dependency
# groups need pip 25.1.
$(VENV)/tools: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet 'pip>=25.1'
	$(BIN)/pip install --quiet --group build
	@touch $@

$(VENV)/installed: $(VENV)/tools pyproject.toml $(NATIVE_SOURCES)
	@$(MAKE) --no-print-directory compile
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install --quiet --no-build-isolation -C build-dir=$(NATIVE) \
	  -C 'build.targets=aiomlc;aiomlc_opencl' --editable '.[serve,trio]'
	@touch $@

$(VENV)/packages: $(VENV)/tools pyproject.toml
	$(BIN)/pip install --quiet --group test --group clients
	@touch $@

# The library compiles while pip downloads.
$(VENV)/dev: $(VENV)/tools pyproject.toml $(NATIVE_SOURCES)
	$(MAKE) -j2 compile $(VENV)/packages
	$(MAKE) $(VENV)/installed
	@touch $@

# ninja shows how far the build is, as pip would not.
compile: $(VENV)/tools
	@$(CMAKE) -S native -B $(NATIVE) $(CMAKE_OPTIONS) -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" >/dev/null
	@NINJA_STATUS="Building the native core: %f of %t, %e s: " $(BIN)/cmake --build $(NATIVE) --target aiomlc

$(VENV)/lint: $(VENV)/dev pyproject.toml
	$(BIN)/pip install --quiet --group lint --group docs build
	@touch $@

# ---- Lint ----

lint: lint-python lint-native

lint-python: $(VENV)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	@mkdir -p build && PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH="$(CURDIR)" \
	  basedpyright --verifytypes aiomlc --ignoreexternal >build/types.log \
	  && grep 'Type completeness score: 100%' build/types.log || { cat build/types.log; exit 1; }
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python .ci/sentences.py

lint-native: $(VENV)/lint
	find native \( -name '*.cc' -o -name '*.h' \) | xargs $(BIN)/clang-format --dry-run -Werror
	$(MAKE) tidy

# clang-tidy on files of the core, all of them or TIDY.
TIDY = $(shell cd native && find src -name '*.cc' -not -path 'src/ffi/*' -not -path 'src/model/tvm_*' \
  -not -path 'src/model/tensor_memory.cc' -not -path 'src/model/virtual_machine.cc' \
  -not -path 'src/model/paged_kv_state.cc')
tidy: $(VENV)/lint configure
	@echo "clang-tidy: $(words $(TIDY)) files"
	@printf 'native/%s\n' $(TIDY) | $(BESIDE) xargs -P $(JOBS) -n 4 $(BIN)/clang-tidy --quiet -p $(NATIVE) \
	  --extra-arg=-Wno-unknown-warning-option 2>build/tidy.log || { cat build/tidy.log; exit 1; }

format: $(VENV)/lint
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	find native \( -name '*.cc' -o -name '*.h' \) | xargs $(BIN)/clang-format -i

# ---- Native tests ----

# CMake fetches the sources of googletest from Debian's package if the system has no library of it.
CONFIGURE = $(CMAKE) -S native $(CMAKE_OPTIONS) -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" \
  -DAIOMLC_TESTS=ON
NATIVE_TESTS = UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(BESIDE) \
  $(BIN)/python native/tests/run_shards.py --jobs $(JOBS)

configure: $(VENV)/installed
	$(CONFIGURE) -B $(NATIVE) >/dev/null

NATIVE_HALVES = engine kernel
native: configure
	$(BESIDE) $(BIN)/cmake --build $(NATIVE) --target $(NATIVE_HALVES:%=aiomlc_%_tests)
	$(if $(filter engine,$(NATIVE_HALVES)),$(NATIVE_TESTS) $(NATIVE)/aiomlc_engine_tests)
	$(if $(filter kernel,$(NATIVE_HALVES)),$(NATIVE_TESTS) --share $(KERNEL_SHARE) $(NATIVE)/aiomlc_kernel_tests)
	$(BIN)/python native/tests/check_isa_leaks.py $(NATIVE)/compile_commands.json

# One directory for everything with these sanitizers: benchmarks/sanitized.sh builds there, too.
HALVES = engine kernel
native-sanitize: $(VENV)/installed
	$(CONFIGURE) -B build/address -DAIOMLC_SANITIZE=address,undefined -DCMAKE_CXX_FLAGS_RELEASE=-O1 >/dev/null
	flock build/address $(BESIDE) $(BIN)/cmake --build build/address --target $(HALVES:%=aiomlc_%_tests)
	$(if $(filter engine,$(HALVES)),$(NATIVE_TESTS) build/address/aiomlc_engine_tests)
	$(if $(filter kernel,$(HALVES)),$(NATIVE_TESTS) --share $(KERNEL_SHARE) build/address/aiomlc_kernel_tests)

# The same for AArch64, cross-compiled and under an emulator; a processor without the dot product is
# given the portable tier. Needs: apt install g++-aarch64-linux-gnu qemu-user-static libgtest-dev
AARCH64_EMULATOR = qemu-aarch64-static -L /usr/aarch64-linux-gnu
AARCH64_OPTIONS = $(CMAKE_OPTIONS) \
	-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
	-DCMAKE_CROSSCOMPILING_EMULATOR="$(subst $(space),;,$(AARCH64_EMULATOR))"

native-aarch64: $(VENV)/tools
	$(CMAKE) -S native -B build/aarch64 $(AARCH64_OPTIONS) -DAIOMLC_FFI=OFF -DAIOMLC_TESTS=ON \
	  -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON >/dev/null
	$(CMAKE) --build build/aarch64
	$(AARCH64_EMULATOR) -cpu max build/aarch64/aiomlc_engine_tests --gtest_brief=1
	$(AARCH64_EMULATOR) -cpu max build/aarch64/aiomlc_kernel_tests --gtest_brief=1
	$(AARCH64_EMULATOR) -cpu cortex-a72 build/aarch64/aiomlc_kernel_tests --gtest_brief=1 \
	  --gtest_filter='CpuInfo.*:Isa.*:*Linear*:*Elementwise*'

space := $() $()

# ---- Documentation ----

# The site, in build/site: a page that is not in the navigation, or a broken link, is an error.
# With --quiet, warnings would be neither shown nor counted.
docs: $(VENV)/lint
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# ---- Python tests ----

# A test that fails beside others, for want of time on a loaded machine, has to pass alone; it is
# listed, and with REPEAT=--strict that is a failure, too.
pytest: dev $(if $(filter-out none,$(THOROUGH)),$(VENV)/lint)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --thorough $(THOROUGH) $(PYTEST_ARGS) || \
	  { [ $$? = 1 ] && $(BIN)/python tests/repeat_failures.py $(REPEAT); }

# Tests in an environment of its own on top of $(VENV), where packages may differ: a few minutes.
define overlay
	$(PYTHON) -m venv $(1)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	  >"$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
	$(1)/bin/python -m pip install --quiet 'pip>=25.1'
	$(1)/bin/pip install --quiet --group $(2)
	@touch $(1)/installed
endef

build/ray/installed build/frameworks/installed: $(VENV)/dev pyproject.toml
	$(call overlay,$(@D),$(notdir $(@D)))

# Warnings are those of the packages.
ray: build/ray/installed
	build/ray/bin/python -m pytest -n 0 -W default --disable-warnings tests/ray

frameworks: build/frameworks/installed
	build/frameworks/bin/python -m pytest -n 0 -W default --disable-warnings tests/frameworks

# Of llama.cpp's source, which is in the archive of llama-cpp-python, only the converter is unpacked.
LLAMA_CPP = build/converter/llama.cpp
$(LLAMA_CPP)/convert_hf_to_gguf.py: | $(VENV)/tools
	rm -rf build/llama-cpp-python && mkdir -p $(@D)
	$(BIN)/pip download --quiet --no-deps --no-binary :all: --no-build-isolation -d build/llama-cpp-python \
	  llama-cpp-python==0.3.36
	tar -xzf build/llama-cpp-python/*.tar.gz --touch --strip-components=3 -C $(@D) --wildcards \
	  '*/vendor/llama.cpp/conversion' '*/vendor/llama.cpp/gguf-py' '*/vendor/llama.cpp/$(@F)'
	rm -r build/llama-cpp-python

build/converter/installed: $(VENV)/dev pyproject.toml
	$(call overlay,$(@D),train)

build/opencl/installed: $(VENV)/dev pyproject.toml
	$(call overlay,$(@D),opencl)

# Devices of OpenCL, on a driver that runs on every processor.
opencl: build/opencl/installed
	build/opencl/bin/python -m pytest -n $(JOBS) tests/model/opencl

# Clients that behave badly, on an OpenCL device: SECONDS of each kind of KV cache.
soak-opencl: build/opencl/installed
	AIOMLC_SOAK_SECONDS=$(SECONDS) build/opencl/bin/python -m pytest -n 0 -s tests/model/opencl/test_opencl_soak.py

# Files of llama.cpp's converter, which needs torch, have the logits of transformers.
converter: build/converter/installed $(LLAMA_CPP)/convert_hf_to_gguf.py
	AIOMLC_LLAMA_CPP="$(CURDIR)/$(LLAMA_CPP)" build/converter/bin/python -m pytest -n 0 \
	  tests/model/families/test_llama_cpp_converter.py tests/model/families/test_mmproj_converter.py

# Lines of the API and the runtime that unit tests reach.
coverage: dev
	$(BIN)/python -m pytest -q -n $(JOBS) --cov tests/unit

# The wheel is built from the source archive, which shows that the archive is complete.
wheel: $(VENV)/lint
	rm -rf dist && mkdir -p build
	$(BIN)/python -m build --outdir dist . >build/wheel.log 2>&1 || { cat build/wheel.log; exit 1; }
	$(BIN)/python -m zipfile -l dist/*.whl | grep -E 'libaiomlc|pebble/params'

# The wheels that are published, for x86-64 and AArch64, in dist/. That of this machine, if it is one
# of them, is then used in an empty environment. What it needs is named in the script.
ARCHITECTURES = x86_64 aarch64

wheels: $(BIN)/python
	PYTHON="$(CURDIR)/$(BIN)/python" packaging/build_wheels.sh $(ARCHITECTURES)
	$(foreach arch,$(filter $(shell uname -m),$(ARCHITECTURES)),\
	  packaging/smoke_test.sh dist/*_$(arch).whl $(BIN)/python)

# Clients that behave badly, for a while: SECONDS=1200 for a long one.
SECONDS = 60
soak: dev
	$(BIN)/python -m benchmarks.soak --seconds $(SECONDS)
	$(BIN)/python -m benchmarks.soak --seconds $(SECONDS) --backend trio --mode small_draft

soak-sanitize: soak-address soak-thread

soak-address: dev
	benchmarks/sanitized.sh address,undefined python -m benchmarks.soak --allowed-growth-mb 400 \
	  --hang-after 120 --seconds $(SECONDS) --mode small_draft

# Every load of a kernel costs a call under the thread sanitizer: a queue takes minutes to empty.
soak-thread: dev
	benchmarks/sanitized.sh thread python -m benchmarks.soak --allowed-growth-mb 400 \
	  --hang-after 300 --clients 16 --seconds $(SECONDS) --mode prompt_lookup

# Model files with random faults, under the address and undefined behavior sanitizers: EXAMPLES=2000
# of each kind, from SEED on.
EXAMPLES = 100
SEED = 0
mutations-sanitize: dev
	AIOMLC_EXAMPLES=$(EXAMPLES) AIOMLC_SEED=$(SEED) benchmarks/sanitized.sh address,undefined \
	  python -m pytest -q -s tests/model/loading/test_mutated_models.py -k "gguf or safetensors"

# Every call of the system of some operations fails in turn.
failing-calls: dev
	AIOMLC_FAILING_CALLS=0 $(BIN)/python -m pytest -q tests/model/faults

# Broken files for the readers, guided by the lines that they reach, for some seconds.
fuzz: dev
	$(BIN)/python -m tests.model.loading.guided_readers $(SECONDS) $(SEED)

bench: dev
	$(BIN)/python -m benchmarks.event_loop_busy

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
