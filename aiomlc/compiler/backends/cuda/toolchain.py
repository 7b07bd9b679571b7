"""The compiler of CUDA's kernels: `nvcc` of PyPI or of a toolkit, or NVRTC. Never imports tvm."""

from __future__ import annotations

__all__ = ("CudaCompiler", "Nvcc", "Program", "find_cuda_compiler")

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, final

from aiomlc.compiler.backends.cuda.nvrtc import Nvrtc
from aiomlc.compiler.backends.cuda.packages import packaged_file
from aiomlc.compiler.backends.cuda.program import Program
from aiomlc.errors import CompileError

_HOMES: Final = ("CUDA_HOME", "CUDA_PATH")
_DEFAULT_HOME: Final = Path("/usr/local/cuda")
_VERSION: Final = re.compile(r"\bV(\d+(?:\.\d+)+)")
_LINES: Final = 20


class CudaCompiler(Protocol):
    """Compiles CUDA's C++ to machine code of one architecture."""

    @property
    def version(self) -> str:
        """Its name and version, on which the code depends.

        Raises:
            CompileError: If it does not run.
        """
        ...

    def compile(self, source: str, arch: str) -> Program:
        """Compile a source for an architecture such as `sm_90a`.

        Raises:
            CompileError: If it cannot be compiled; the message has the compiler's output.
        """
        ...


@final
@dataclass(frozen=True, slots=True)
class Nvcc:
    """The program `nvcc`, which needs `g++`."""

    path: Path

    @property
    def version(self) -> str:
        """Its version.

        Raises:
            CompileError: If it does not run.
        """
        return _version(self.path)

    def compile(self, source: str, arch: str) -> Program:
        """Compile a source for an architecture.

        Raises:
            CompileError: If `nvcc` or its C++ compiler fails.
        """
        with tempfile.TemporaryDirectory() as directory:
            kernels, output = Path(directory, "kernels.cu"), Path(directory, "kernels.cubin")
            kernels.write_text(source)
            flags = ("-cubin", f"-arch={arch}", "-O3", "--resource-usage")
            log = _run(self.path, *flags, "-o", str(output), str(kernels))
            return Program(output.read_bytes(), log)


def find_cuda_compiler() -> CudaCompiler:
    """Return the first CUDA compiler that is found.

    These are `nvcc` of `$CUDA_HOME` or `$CUDA_PATH`, of the packages of PyPI, in `$PATH` and in
    `/usr/local/cuda`, and then the package of NVRTC.

    Raises:
        CompileError: If there is none, or `$CUDA_HOME` has none.
    """
    nvcc = next(_nvccs(), None)
    if nvcc is not None:
        return Nvcc(nvcc)

    library = packaged_file("libnvrtc.so.13")
    headers = packaged_file("cuda_fp16.h")
    if library is not None and headers is not None:
        return Nvrtc(library, headers.parent)

    raise CompileError(
        "no CUDA compiler is found: pip install 'aiomlc[cuda]' (nvidia-cuda-nvcc and what it "
        "needs, or nvidia-cuda-nvrtc), or install NVIDIA's toolkit 13 and set CUDA_HOME to it, or "
        "PATH to its nvcc"
    )


def _nvccs() -> Iterator[Path]:
    """Yield the paths of `nvcc`, the first choice first."""
    for name in _HOMES:
        if home := os.environ.get(name):
            path = Path(home, "bin", "nvcc")
            if not path.is_file():
                raise CompileError(f"{name} is {home}, which has no bin/nvcc: correct or unset it")
            yield path

    packaged = packaged_file("nvcc")
    if packaged is not None and packaged_file("cicc") and packaged_file("cuda_fp16.h"):
        yield packaged
    if found := shutil.which("nvcc"):
        yield Path(found)
    if (path := _DEFAULT_HOME / "bin" / "nvcc").is_file():
        yield path


@functools.cache
def _version(path: Path) -> str:
    output = _run(path, "--version")
    match = _VERSION.search(output)
    if match is None:
        raise CompileError(f"{path} --version does not tell a version: {output.strip()!r}")

    return f"nvcc {match[1]}"


def _run(*command: str | Path) -> str:
    """Return the output of a program.

    Raises:
        CompileError: If it cannot be started or fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, check=False, text=True)
    except OSError as error:
        raise CompileError(f"cannot run {command[0]}: {error.strerror}") from None

    output = done.stdout + done.stderr
    if done.returncode != 0:
        tail = "\n".join(output.splitlines()[-_LINES:])
        raise CompileError(f"{command[0]} failed with status {done.returncode}:\n{tail}")

    return output
