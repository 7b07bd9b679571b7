#!/usr/bin/env bash
# Builds the wheels for Linux, without a container:
#
#     packaging/build_wheels.sh [x86_64 | aarch64]...     # into dist/, by default both
#
# The system's GCC compiles against the C library of Debian 11 (glibc 2.31), because llguidance has no
# wheels for an older one. libstdc++ is linked statically, because that of the machine that installs
# the wheel may be older than the compiler. auditwheel fails if a wheel needs more than its tag says,
# and the linker if the C library lacks a symbol. packaging/smoke_test.sh uses a wheel where no compiler
# is.
#
# Needs: apt install g++-x86-64-linux-gnu g++-aarch64-linux-gnu mmdebstrap debian-archive-keyring python3-venv
# (on x86-64, g++ is the first of these). SUITE selects the release of Debian that the C library is of.
set -euo pipefail
cd "$(dirname "$0")/.."

SUITE=${SUITE:-bullseye}
# Where Debian comes from: on Debian as for this machine, elsewhere the default of mmdebstrap.
MIRROR=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
  grep '/debian/$' | head -n 1 || true)}
TAG=manylinux_2_31
WORK=$PWD/build/wheels
TOOLS=$WORK/tools
PYTHON=${PYTHON:-python3}
# Where the source archive is unpacked; always the same place, for a compiler cache.
SOURCE=${SOURCE:-$WORK/source}

fail() {
  echo "build_wheels.sh: $*" >&2
  exit 1
}

# An environment with the tools of the dependency groups `build` and `wheels`.
make_tools() {
  [ -x "$TOOLS/bin/python" ] || "$PYTHON" -m venv "$TOOLS"
  "$TOOLS/bin/pip" install --quiet 'pip>=25.1'
  "$TOOLS/bin/pip" install --quiet --group build --group wheels
  export PATH="$TOOLS/bin:$PATH"
}

# Headers and libraries of the C library: architecture, Debian's name of it, directory.
make_sysroot() {
  local arch=$1 debian_arch=$2 sysroot=$3 link target
  [ -e "$sysroot/.complete" ] && return
  rm -rf "$sysroot"
  mmdebstrap --quiet --variant=extract --architectures="$debian_arch" --include=libc6-dev \
    "$SUITE" "$sysroot" ${MIRROR:+"deb $MIRROR $SUITE main"}
  # A linker follows absolute links to the files of this machine.
  find "$sysroot"/lib* "$sysroot/usr/lib/$arch-linux-gnu" -type l -lname '/*' | while read -r link; do
    target=$(readlink "$link")
    ln -sfn "$(realpath --relative-to="$(dirname "$link")" "$sysroot$target")" "$link"
  done
  touch "$sysroot/.complete"
}

# A toolchain file of CMake: architecture, sysroot. All paths are given, because a cross compiler also
# searches the directories of the C library that it came with.
write_toolchain() {
  local arch=$1 sysroot=$2 triple=$1-linux-gnu compiler directory includes='' libraries=''
  compiler=$(command -v "$triple-g++") || fail "$triple-g++ is missing: apt install g++-${arch/_/-}-linux-gnu"
  for directory in $("$compiler" -E -v -x c++ /dev/null 2>&1 | sed -n '/^#include </,/^End/{/^ /p}' |
    xargs realpath | grep -E '/c\+\+/|/gcc'); do
    [[ $directory == *include-fixed* ]] || includes+=" -isystem $directory"
  done
  for directory in usr/include/$triple usr/include; do includes+=" -isystem $sysroot/$directory"; done
  for directory in usr/lib/$triple lib/$triple; do libraries+=" -B$sysroot/$directory -L$sysroot/$directory"; done
  # shellcheck disable=SC2086 # Options.
  "$compiler" -O2 -fPIC -fvisibility=hidden -nostdinc -nostdinc++ $includes -c -o "$WORK/$arch/newer_glibc.o" \
    packaging/newer_glibc.cc
  # -z defs: a symbol that the old C library lacks is an error here, and not where the wheel is used.
  libraries+=" $WORK/$arch/newer_glibc.o -Wl,-z,defs"
  cat <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $arch)
set(CMAKE_SYSROOT $sysroot)
set(CMAKE_CXX_COMPILER $compiler)
set(CMAKE_CXX_FLAGS_INIT "-nostdinc -nostdinc++$includes")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "$libraries -static-libstdc++")
set(CMAKE_EXE_LINKER_FLAGS_INIT "\${CMAKE_SHARED_LINKER_FLAGS_INIT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE NEVER)
END
}

# Prints the path of libtvm_ffi.so of an architecture, of the version that is installed here.
fetch_tvm_ffi() {
  local arch=$1 directory=$WORK/tvm_ffi-$1 version
  version=$("$TOOLS/bin/python" -c 'from importlib.metadata import version; print(version("apache-tvm-ffi"))')
  if [ ! -e "$directory/$version" ]; then
    rm -rf "$directory"
    "$TOOLS/bin/pip" download --quiet --no-deps --only-binary=:all: --dest "$directory" \
      --platform "${TAG}_$arch" --platform "manylinux_2_28_$arch" "apache-tvm-ffi==$version" >&2
    "$TOOLS/bin/python" -m zipfile -e "$directory"/*.whl "$directory"
    touch "$directory/$version"
  fi
  echo "$directory/tvm_ffi/lib/libtvm_ffi.so"
}

build_wheel() {
  local arch=$1 debian_arch directory=$WORK/$1 sysroot=$WORK/$1/sysroot wheel
  case $arch in
  x86_64) debian_arch=amd64 ;;
  aarch64) debian_arch=arm64 ;;
  *) fail "$arch: unknown architecture; x86_64 and aarch64 are known" ;;
  esac
  mkdir -p "$directory"
  make_sysroot "$arch" "$debian_arch" "$sysroot"
  write_toolchain "$arch" "$sysroot" >"$directory/toolchain.cmake"
  # The files of a source archive are older than any object, so a build never goes on with another.
  rm -rf "$directory/cmake" "$directory/built" "$directory/repaired"
  CMAKE_TOOLCHAIN_FILE=$directory/toolchain.cmake _PYTHON_HOST_PLATFORM=linux-$arch \
    "$TOOLS/bin/pip" wheel --quiet --no-build-isolation --no-deps --wheel-dir "$directory/built" \
    --config-settings=build-dir="$directory/cmake" \
    --config-settings=cmake.define.AIOMLC_TVM_FFI_LIBRARY="$(fetch_tvm_ffi "$arch")" \
    "$SOURCE"
  wheel=$(echo "$directory"/built/*.whl)
  # libtvm_ffi.so comes with its own wheel, which is a dependency.
  auditwheel repair --only-plat --plat auto --exclude libtvm_ffi.so \
    --wheel-dir "$directory/repaired" "$wheel"
  ls "$directory/repaired/"*"-${TAG}_$arch.whl" >/dev/null || fail "$wheel does not get the tag ${TAG}_$arch"
  mkdir -p dist
  cp "$directory"/repaired/*.whl dist/
}

if (($# == 0)); then set -- x86_64 aarch64; fi
make_tools
# A wheel is built from the source archive, which shows that the archive is complete.
rm -rf "$WORK/sdist"
"$TOOLS/bin/python" -m build --sdist --no-isolation --outdir "$WORK/sdist" . >"$WORK/sdist.log" 2>&1 ||
  { cat "$WORK/sdist.log" >&2; exit 1; }
rm -rf "$SOURCE" && mkdir -p "$SOURCE"
tar -xzf "$WORK"/sdist/aiomlc-*.tar.gz --strip-components=1 -C "$SOURCE"
for arch in "$@"; do build_wheel "$arch"; done
