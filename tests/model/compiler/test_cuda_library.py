"""Libraries for NVIDIA's GPUs are compiled where there is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from aiomlc import EngineConfig, compile_model
from aiomlc.cache import LIBRARIES, list_entries
from aiomlc.compiler import read_library
from aiomlc.compiler.backends.cuda.program import decode_program
from aiomlc.compiler.backends.cuda.toolchain import find_cuda_compiler
from aiomlc.errors import CompileError
from aiomlc.runtime.loading.device import find_target
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.prepare import compile_job

Directory = Callable[[str], Path]
_CUDA = 190  # The `e_machine` of an ELF file.


def _has_compiler() -> bool:
    try:
        return bool(find_cuda_compiler().version)
    except CompileError:
        return False


needs_compiler = pytest.mark.skipif(
    not _has_compiler(), reason="needs a CUDA compiler: pip install 'aiomlc[cuda]'"
)


def _compile(model: Path, output: Path, arch: str) -> Path:
    async def run() -> Path:
        return await compile_model(
            model, output, device="cuda", arch=arch, quantization="q4f16_1", force=True
        )

    return anyio.run(run)


@needs_compiler
@pytest.mark.thorough
def test_a_library_has_machine_code_of_its_architecture(
    tiny_directory: Directory, tmp_path: Path
) -> None:
    model = tiny_directory("llama")
    codes = {}
    for arch in ("sm_80", "sm_90a"):
        path = _compile(model, tmp_path / f"{arch}.lib", arch)
        facts = ModelFacts(find_model(model), "q4f16_1")
        config = EngineConfig(quantization="q4f16_1")
        library = read_library(path, compile_job(facts, "cuda", config, find_target("cuda", arch)))
        codes[arch] = _cubin(library.code)

    assert codes["sm_80"] != codes["sm_90a"]
    for cubin in codes.values():
        assert cubin.startswith(b"\x7fELF")
        assert int.from_bytes(cubin[18:20], "little") == _CUDA
        assert b"batch_decode_paged_kv_kernel" in cubin
    assert len([entry for entry in list_entries() if entry.stored.kind == LIBRARIES]) >= len(codes)


def _cubin(code: bytes) -> bytes:
    """Return the machine code in a library, which stores it as text."""
    match = re.search(rb"aiomlc cubin [A-Za-z0-9+/]*={0,2}", code)
    assert match is not None
    return decode_program(match[0].decode())


def test_without_a_compiler_the_error_says_what_to_install(
    tiny_directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))

    with pytest.raises(CompileError, match="has no bin/nvcc"):
        _compile(tiny_directory("llama"), tmp_path / "model.lib", "sm_90a")
