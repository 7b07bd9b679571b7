# Every command sets up what it needs in `.venv`; nothing is installed twice.
#   make chat            one answer from the bundled model (PROMPT="..." asks another, PROMPT= converses)
#   make test            everything that has to pass before a change is merged
#   make lint native native-sanitize pytest wheel bench clean   the parts
#   make soak soak-sanitize SECONDS=600   clients that behave badly

PROMPT = Tell me a story about a fox called Rosa.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SANITIZE ?= $(CI)
PYTEST_ARGS ?=

export PROMPT
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
ifneq ($(shell command -v ccache),)
export CMAKE_CXX_COMPILER_LAUNCHER := ccache
endif

NATIVE_SOURCES := $(shell find native -type f -not -path 'native/tests/*')
# Prints the requirements that an expression over pyproject.toml, `p`, evaluates to.
REQUIREMENTS = $(BIN)/python -c 'import sys, tomllib; \
	p = tomllib.load(open("pyproject.toml", "rb")); print(*eval(sys.argv[1]), sep="\n")'

.PHONY: chat test dev lint format native native-sanitize native-aarch64 pytest wheel soak soak-sanitize bench clean
.DELETE_ON_ERROR:

chat: $(VENV)/installed
	@if [ -n "$$PROMPT" ]; then $(BIN)/aiomlc chat "$$PROMPT"; else $(BIN)/aiomlc chat; fi

test: lint native $(if $(filter-out 0 false,$(SANITIZE)),native-sanitize) pytest

dev: $(VENV)/installed $(VENV)/dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The build tools live in the environment, so that a rebuild compiles only what changed.
$(VENV)/tools: $(BIN)/python pyproject.toml
	@$(REQUIREMENTS) '[*p["build-system"]["requires"], "cmake>=3.24", "ninja"]' > $@.txt
	$(BIN)/pip install --quiet -r $@.txt
	@touch $@

$(VENV)/installed: $(VENV)/tools pyproject.toml $(NATIVE_SOURCES)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install --quiet --no-build-isolation --editable .
	@touch $@

$(VENV)/dev: $(BIN)/python pyproject.toml
	@$(REQUIREMENTS) 'p["project"]["optional-dependencies"]["dev"]' > $@.txt
	$(BIN)/pip install --quiet -r $@.txt
	@touch $@

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	@mkdir -p build && PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH="$(CURDIR)" \
	  basedpyright --verifytypes aiomlc --ignoreexternal >build/types.log \
	  && grep 'Type completeness score: 100%' build/types.log || { cat build/types.log; exit 1; }
	$(BIN)/lint-imports
	find native \( -name '*.cc' -o -name '*.h' \) | xargs $(BIN)/clang-format --dry-run -Werror

format: dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	find native \( -name '*.cc' -o -name '*.h' \) | xargs $(BIN)/clang-format -i

HAVE_GTEST = printf '\#include <gmock/gmock.h>\n\#include <gtest/gtest.h>\n' \
	| $(or $(CXX),g++) -x c++ -E - >/dev/null 2>&1
NO_GTEST = echo "SKIPPED: native unit tests (googletest is absent: apt install libgtest-dev libgmock-dev)"
# Configures, builds and runs the native unit tests: folder, more options of CMake.
define native_tests
	@if $(HAVE_GTEST); then set -ex; \
	  $(BIN)/cmake -S native -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
	    -DAIOMLC_FFI=OFF -DAIOMLC_TESTS=ON $(2) >/dev/null; \
	  $(BIN)/cmake --build $(1); \
	  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(1)/aiomlc_tests --gtest_brief=1; \
	else $(NO_GTEST); fi
endef

native: $(VENV)/tools
	$(call native_tests,build/native)

native-sanitize: $(VENV)/tools
	$(call native_tests,build/native-sanitize,-DAIOMLC_SANITIZE=address$(comma)undefined \
	  -DCMAKE_CXX_FLAGS_RELEASE=-O1)

# The same for AArch64, cross-compiled and under an emulator; a processor without the dot product is
# given the portable tier. Needs: apt install g++-aarch64-linux-gnu qemu-user-static libgtest-dev
AARCH64_EMULATOR = qemu-aarch64-static -L /usr/aarch64-linux-gnu
AARCH64_OPTIONS = -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
	-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
	-DCMAKE_CROSSCOMPILING_EMULATOR="$(subst $(space),;,$(AARCH64_EMULATOR))"

native-aarch64: $(VENV)/tools
	$(BIN)/cmake -S /usr/src/googletest -B build/aarch64/googletest $(AARCH64_OPTIONS) \
	  -DCMAKE_INSTALL_PREFIX="$(CURDIR)/build/aarch64/root" >/dev/null
	$(BIN)/cmake --build build/aarch64/googletest --target install >/dev/null
	$(BIN)/cmake -S native -B build/aarch64/native $(AARCH64_OPTIONS) -DAIOMLC_FFI=OFF -DAIOMLC_TESTS=ON \
	  -DCMAKE_PREFIX_PATH="$(CURDIR)/build/aarch64/root" >/dev/null
	$(BIN)/cmake --build build/aarch64/native
	$(AARCH64_EMULATOR) -cpu max build/aarch64/native/aiomlc_tests --gtest_brief=1
	$(AARCH64_EMULATOR) -cpu cortex-a72 build/aarch64/native/aiomlc_tests --gtest_brief=1 \
	  --gtest_filter='CpuInfo.*:Isa.*:*Linear*:*Elementwise*'

comma := ,
space := $() $()

pytest: dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The wheel is built from the source archive, which shows that the archive is complete.
wheel: dev
	rm -rf dist && mkdir -p build
	$(BIN)/python -m build --outdir dist . >build/wheel.log 2>&1 || { cat build/wheel.log; exit 1; }
	$(BIN)/python -m zipfile -l dist/*.whl | grep -E 'libaiomlc|pebble/params'

# Clients that behave badly, for a while: SECONDS=1200 for a long one.
SECONDS = 60
soak: dev
	$(BIN)/python -m benchmarks.soak --seconds $(SECONDS)
	$(BIN)/python -m benchmarks.soak --seconds $(SECONDS) --backend trio --mode small_draft

# The same against the library that Python loads, built with sanitizers: folder, sanitizers, what to
# preload, more options. The interpreter, TVM's libraries and llguidance are not instrumented, so what
# they leak says nothing; what is freed is kept for a while.
define sanitized_soak
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake -S native -B build/$(1) -G Ninja \
	  -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" -DCMAKE_CXX_COMPILER=$(CXX) \
	  -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" -DCMAKE_CXX_FLAGS_RELEASE="-O1 -w" \
	  -DAIOMLC_SANITIZE=$(2) >/dev/null
	$(BIN)/cmake --build build/$(1)
	AIOMLC_LIBRARY=$(CURDIR)/build/$(1)/libaiomlc.so \
	  LD_PRELOAD="$(foreach library,$(3),$(shell $(CXX) -print-file-name=$(library).so))" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	  TSAN_OPTIONS="halt_on_error=1 suppressions=$(CURDIR)/native/tests/thread_sanitizer.supp" \
	  $(BIN)/python -m benchmarks.soak --seconds $(SECONDS) $(4)
endef

soak-sanitize: dev
	$(call sanitized_soak,library-address,address$(comma)undefined,libasan libubsan,--allowed-growth-mb 400 --mode small_draft)
	$(call sanitized_soak,library-thread,thread,libtsan,--allowed-growth-mb 400 --mode prompt_lookup)

bench: dev
	$(BIN)/python -m benchmarks.event_loop_busy

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
