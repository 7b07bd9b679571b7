"""NVRTC, NVIDIA's compiler as a library: needs neither `nvcc` nor a C++ compiler."""

from __future__ import annotations

__all__ = ("Nvrtc",)

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from aiomlc.compiler.backends.cuda.program import Program
from aiomlc.errors import CompileError

_LINES: Final = 20


@final
@dataclass(frozen=True, slots=True)
class Nvrtc:
    """The library `libnvrtc.so`."""

    path: Path
    headers: Path  #: The folder with `cuda_fp16.h`.

    @property
    def version(self) -> str:
        """Its version.

        Raises:
            CompileError: If the library cannot be loaded.
        """
        major, minor = ctypes.c_int(), ctypes.c_int()
        _check(_library(self.path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return f"nvrtc {major.value}.{minor.value}"

    def compile(self, source: str, arch: str) -> Program:
        """Compile a source for an architecture.

        Raises:
            CompileError: If it cannot be compiled.
        """
        library, program = _library(self.path), ctypes.c_void_p()
        handle = ctypes.byref(program)
        name = b"kernels.cu"
        _check(library.nvrtcCreateProgram(handle, source.encode(), name, 0, None, None))
        try:
            return _compile(library, program, self._options(arch))
        finally:
            library.nvrtcDestroyProgram(handle)

    def _options(self, arch: str) -> list[bytes]:
        includes = (self.headers, self.headers / "cccl")
        options = [f"--gpu-architecture={arch}", "--device-int128", "--ptxas-options=-v"]
        return [text.encode() for text in (*options, *(f"-I{path}" for path in includes))]


def _compile(library: ctypes.CDLL, program: ctypes.c_void_p, options: list[bytes]) -> Program:
    array = (ctypes.c_char_p * len(options))(*options)
    status = library.nvrtcCompileProgram(program, len(options), array)
    log = _output(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
    if status != 0:
        tail = "\n".join(log.splitlines()[-_LINES:])
        raise CompileError(f"NVRTC failed with error {status}:\n{tail}")

    return Program(_output(library, program, "CUBIN"), log)


def _output(library: Any, program: ctypes.c_void_p, kind: str) -> bytes:  # noqa: ANN401 - ctypes.
    size = ctypes.c_size_t()
    _check(getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{kind}")(program, buffer))
    return buffer.raw


def _check(status: int) -> None:
    if status != 0:
        raise CompileError(f"NVRTC failed with error {status}")


@functools.cache
def _library(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"cannot load NVRTC: {error}") from None
