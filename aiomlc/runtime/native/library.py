"""Loading of the native libraries, and access to their functions by name."""

from __future__ import annotations

__all__ = (
    "ffi_shape",
    "has_global",
    "load_native",
    "load_opencl",
    "native_function",
    "open_library",
    "register_global",
    "replaced_global",
    "tvm_library",
)

import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiomlc import errors

if TYPE_CHECKING:
    from aiomlc.compiler.job import CompiledLibrary

_ELF: Final = b"\x7fELF"
_replacing: Final = threading.Lock()
_FFI_ERRORS = (
    errors.BadRequestError,
    errors.EngineError,
    errors.GrammarError,
    errors.PrefixNotCachedError,
    errors.PromptTooLongError,
    errors.EngineClosedError,
    errors.EngineDeadError,
    errors.EngineOverloadedError,
    errors.ModelLoadError,
    MemoryError,
)


def _library_path() -> Path:
    """Return the path of the library: `$AIOMLC_LIBRARY`, in the package, or as installed."""
    if override := os.environ.get("AIOMLC_LIBRARY"):
        return Path(override)

    packaged = Path(__file__).parents[2] / "lib" / "libaiomlc.so"
    if packaged.is_file():
        return packaged
    for file in importlib.metadata.files("aiomlc") or ():
        if file.name.startswith("libaiomlc."):
            return Path(str(file.locate()))
    raise errors.ModelLoadError(f"cannot find {packaged}: reinstall aiomlc", path=packaged)


def tvm_library(name: str) -> Path:
    """Return the path of a library of TVM.

    Raises:
        ModelLoadError: If apache-tvm is not installed.
    """
    spec = importlib.util.find_spec("tvm")  # Does not import the package.
    if spec is None or not spec.submodule_search_locations:
        raise errors.ModelLoadError("apache-tvm is missing: pip install apache-tvm")
    return Path(spec.submodule_search_locations[0]) / "lib" / name


def _import_tvm_ffi() -> None:
    """Import `tvm_ffi` without torch, which it would import if installed.

    Importing torch takes more than a second. A program that uses both imports torch itself.
    """
    if "torch" in sys.modules:
        return

    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("tvm_ffi")
    finally:
        del sys.modules["torch"]


@functools.cache
def _register_errors() -> None:
    """Register the errors that native code raises, so that Python gets them with their type."""
    _import_tvm_ffi()
    import tvm_ffi

    for error in _FFI_ERRORS:
        tvm_ffi.register_error(error.__name__, error)


@functools.cache
def load_native() -> None:
    """Load TVM's runtime and aiomlc's library into the process, without importing `tvm`.

    Raises:
        ModelLoadError: If a library is missing or cannot be loaded.
    """
    _register_errors()
    try:
        for name in ("libtvm_runtime.so", "libtvm_runtime_extra.so"):
            ctypes.CDLL(str(tvm_library(name)), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(_library_path()), ctypes.RTLD_GLOBAL)
    except OSError as error:
        hint = "; AIOMLC_LIBRARY is set" if os.environ.get("AIOMLC_LIBRARY") else ""
        raise errors.ModelLoadError(f"cannot load a native library: {error}{hint}") from error


@functools.cache
def load_opencl() -> None:
    """Load TVM's runtime and aiomlc's library of OpenCL devices into the process.

    Raises:
        ModelLoadError: If the library is missing or cannot be loaded.
    """
    load_native()
    path = _library_path().with_name("libaiomlc_opencl.so")
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise errors.ModelLoadError(f"cannot load a native library: {error}") from error


@contextmanager
def open_library(library: CompiledLibrary) -> Iterator[Any]:
    """Load a compiled library, and yield its module to a body that opens a model with it.

    Raises:
        ModelLoadError: If the library cannot be loaded, or the body fails, for example because a
            function is missing.
        MemoryError: If an allocation in the body fails.
    """
    try:
        yield _load_module(library.code)
    except (errors.AiomlcError, MemoryError):
        raise
    except Exception as error:
        raise errors.ModelLoadError(
            f"cannot open the compiled library {library.path}: {error}", path=library.path
        ) from error


def _load_module(code: bytes) -> Any:  # noqa: ANN401 - tvm_ffi is untyped here.
    """Load bytecode, or a shared object with bytecode and the machine code that it calls."""
    if not code.startswith(_ELF):
        return native_function("ffi.Module.load_from_bytes.relax.VMExecutable")(code)

    with tempfile.NamedTemporaryFile(prefix="aiomlc-", suffix=".so") as file:
        file.write(code)
        file.flush()
        # The library stays mapped without its file.
        return native_function("ffi.Module.load_from_file.so")(file.name, "so")


def has_global(name: str) -> bool:
    """Return whether the FFI's global registry has a function of this name."""
    import tvm_ffi

    return tvm_ffi.get_global_func(name, allow_missing=True) is not None


def register_global(name: str, function: Callable[..., object]) -> None:
    """Register a function in the FFI's global registry, where every language finds it by name.

    Its return value is converted: a dict of functions becomes a map of FFI functions.
    """
    _register_errors()
    import tvm_ffi

    tvm_ffi.register_global_func(name, function)


@contextmanager
def replaced_global(name: str, function: Callable[..., object]) -> Iterator[None]:
    """Register a function in the FFI's global registry, in place of any other, for a while.

    Bodies in several threads run one after the other.
    """
    load_native()
    import tvm_ffi
    from tvm_ffi.registry import remove_global_func

    with _replacing:
        previous = tvm_ffi.get_global_func(name, allow_missing=True)
        tvm_ffi.register_global_func(name, function, override=True)
        try:
            yield
        finally:
            if previous is None:
                remove_global_func(name)
            else:
                tvm_ffi.register_global_func(name, previous, override=True)


def native_function(name: str) -> Any:  # noqa: ANN401 - an FFI function has no static signature.
    """Return a native function by its global name; calls release the GIL."""
    import tvm_ffi

    load_native()
    function = tvm_ffi.get_global_func(name)
    # TVM_FFI_RELEASE_GIL_BY_DEFAULT can disable this globally, which would block all Python threads
    # while the core runs.
    function.release_gil = True
    return function


def ffi_shape(values: Iterable[int]) -> object:
    """Convert integers to an FFI shape."""
    import tvm_ffi

    return tvm_ffi.Shape(tuple(values))
