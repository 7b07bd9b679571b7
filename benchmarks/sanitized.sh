#!/usr/bin/env bash
# A command of Python with the native library built with sanitizers.
#   benchmarks/sanitized.sh address,undefined|thread COMMAND [arguments]
# The interpreter, TVM's libraries and llguidance are not instrumented, so what they leak says
# nothing; freed memory is kept for a while.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitizers=$1
shift

bin=$PWD/${VENV:-.venv}/bin
build=$PWD/build/${sanitizers%%,*}
PATH="$bin:$PATH" "$bin/cmake" -S native -B "$build" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" \
  -DCMAKE_CXX_COMPILER="${CXX:-g++}" -DPython_EXECUTABLE="$bin/python" \
  -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DAIOMLC_SANITIZE="$sanitizers" >/dev/null
# Not beside the native tests, which are built in the same directory.
flock "$build" "$bin/cmake" --build "$build" --target aiomlc

preload=()
for library in asan ubsan tsan; do
  case $sanitizers:$library in
    *address*:asan | *undefined*:ubsan | *thread*:tsan)
      preload+=("$("${CXX:-g++}" -print-file-name="lib$library.so")")
      ;;
  esac
done

AIOMLC_LIBRARY=$build/libaiomlc.so LD_PRELOAD="${preload[*]}" \
  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/native/tests/thread_sanitizer.supp" \
  PATH="$bin:$PATH" "$@"
