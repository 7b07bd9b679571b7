"""Compile models for an NVIDIA GPU that need not be there, and show what their kernels take.

`python -m benchmarks.cuda_kernels --arch sm_90a` needs a CUDA compiler (the extra `cuda` or a
toolkit), but neither weights nor a GPU. It ends with 1 if a kernel that every token runs spills
registers. Models that the back end refuses are listed with its reason.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

from aiomlc.compiler import CompileJob, backend_of
from aiomlc.compiler.backends.cuda import backend as cuda_backend
from aiomlc.compiler.backends.cuda.architecture import check_architecture, target_of
from aiomlc.compiler.backends.cuda.program import Program
from aiomlc.compiler.backends.cuda.toolchain import CudaCompiler, find_cuda_compiler
from aiomlc.compiler.cache import LIBRARY_NAME
from aiomlc.compiler.quantization import quantization_named
from aiomlc.errors import AiomlcError
from aiomlc.models import read_description
from benchmarks.model_shapes import SHAPES

#: Kernels of TVM's KV cache that no step of this engine calls, or no step of most models.
_COLD: Final = ("tree_attn", "_tree_", "debug_get_kv", "_mla", "compact_kv", "copy_single_page")
_ENTRY: Final = re.compile(r"Compiling entry function '(\w+)' for")
_SPILLS: Final = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill")
_REGISTERS: Final = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True, slots=True)
class Kernel:
    """The resources of a kernel, as `ptxas` tells them."""

    name: str
    registers: int  #: Of a thread.
    stack_bytes: int  #: Of a thread: arrays that are indexed by variables, and spills.
    spill_bytes: int  #: Written and read.

    @property
    def is_hot(self) -> bool:
        """Whether steps of an engine run it."""
        return not any(part in self.name for part in _COLD)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A model's library."""

    model: str
    quantization: str
    seconds: float
    compiler_seconds: float  #: Of it, in the CUDA compiler.
    library_bytes: int
    kernels: tuple[Kernel, ...]

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        hot = [kernel for kernel in self.kernels if kernel.is_hot]
        most = max(hot, key=lambda kernel: kernel.registers)
        spilling = [f"{k.name} {k.spill_bytes}" for k in self.kernels if k.spill_bytes]
        return (
            self.model,
            self.quantization,
            f"{self.seconds:.0f} ({self.compiler_seconds:.0f})",
            f"{self.library_bytes / 1e6:.1f}",
            f"{len(self.kernels)}",
            f"{most.registers} ({most.name.removesuffix('_kernel')})",
            ", ".join(spilling) or "none",
        )


class Recorder:
    """A CUDA compiler whose time and output are recorded."""

    def __init__(self, compiler: CudaCompiler) -> None:
        self._compiler = compiler
        self.version: str = compiler.version
        self.seconds = 0.0
        self.log = ""

    def compile(self, source: str, arch: str) -> Program:
        """Compile a source."""
        start = time.perf_counter()
        program = self._compiler.compile(source, arch)
        self.seconds += time.perf_counter() - start
        self.log += program.log
        return program


def compile_shape(name: str, quantization: str, arch: str, compiler: CudaCompiler) -> Compiled:
    """Compile a model of `SHAPES`.

    Raises:
        AiomlcError: If the back end refuses it, or the compiler fails.
    """
    from aiomlc.compiler.build import build

    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "config.json").write_text(json.dumps(SHAPES[name]))
        config = read_description(Path(directory)).config
        backend_of("cuda").check(config, quantization_named(quantization), "auto")
        job = CompileJob(
            config=config, quantization=quantization, device="cuda", target=target_of(arch)
        )
        recorder, start = Recorder(compiler), time.perf_counter()
        with mock.patch.object(cuda_backend, "find_cuda_compiler", return_value=recorder):
            build(job, Path(directory), lambda *_: None)
        return Compiled(
            name,
            quantization,
            time.perf_counter() - start,
            recorder.seconds,
            Path(directory, LIBRARY_NAME).stat().st_size,
            tuple(parse_log(recorder.log)),
        )


def parse_log(log: str) -> list[Kernel]:
    """Return the kernels in the output of `ptxas -v`."""
    kernels = []
    for part in re.split(r"(?=Compiling entry function)", log)[1:]:
        entry, spills, registers = (p.search(part) for p in (_ENTRY, _SPILLS, _REGISTERS))
        assert entry is not None
        assert spills is not None
        assert registers is not None
        stack, stores, loads = map(int, spills.groups())
        kernels.append(Kernel(entry[1], int(registers[1]), stack, stores + loads))
    return kernels


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile the models, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--quantization", nargs="+", default=["q4f16_1", "q0f32"])
    parser.add_argument("--model", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--json", type=Path, help="also write the resources of each kernel here")
    options = parser.parse_args(arguments)
    arch, compiler = check_architecture(options.arch), find_cuda_compiler()
    print(f"{compiler.version}, {arch}", file=sys.stderr)
    results: list[Compiled] = []
    print("| model | weights | seconds (in nvcc) | MB | kernels | most registers | spilled bytes |")
    print("|---|---|---|---|---|---|---|")
    for name in options.model:
        for quantization in options.quantization:
            try:
                results.append(compile_shape(name, quantization, arch, compiler))
            except AiomlcError as error:
                print(f"| {name} | {quantization} | {error} |", flush=True)
            else:
                print(f"| {' | '.join(results[-1].row())} |", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(_as_json(compiler.version, arch, results), indent=1))
    return int(any(k.is_hot and k.spill_bytes for result in results for k in result.kernels))


def _as_json(version: str, arch: str, results: Sequence[Compiled]) -> Mapping[str, Any]:
    return {"compiler": version, "arch": arch, "models": [asdict(result) for result in results]}


if __name__ == "__main__":
    sys.modules["torch"] = None  # type: ignore[assignment]
    sys.exit(main())
