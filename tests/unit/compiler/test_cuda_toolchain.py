"""The CUDA compiler is found, named by its version, and missing with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aiomlc.compiler.backends.cuda import toolchain
from aiomlc.compiler.backends.cuda.architecture import ARCHITECTURES, architecture_of
from aiomlc.compiler.backends.cuda.nvrtc import Nvrtc
from aiomlc.compiler.backends.cuda.program import decode_program, encode_program
from aiomlc.compiler.backends.cuda.toolchain import Nvcc, find_cuda_compiler
from aiomlc.compiler.backends.registry import backend_of
from aiomlc.errors import CompileError

Script = Callable[[Path, str], Path]
_NVCC = "echo 'Cuda compilation tools, release 13.5, V13.5.37'"
_PACKAGED = ("nvcc", "cicc", "cuda_fp16.h", "libnvrtc.so.13")


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the compilers of this machine."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(toolchain, "_DEFAULT_HOME", tmp_path / "missing")
    monkeypatch.setattr(toolchain, "packaged_file", lambda _: None)


@pytest.fixture
def script() -> Script:
    def write(path: Path, body: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


def test_without_a_compiler_the_error_names_the_packages_and_the_toolkit() -> None:
    with pytest.raises(CompileError, match=r"'aiomlc\[cuda\]'.*nvidia-cuda-nvcc.*CUDA_HOME"):
        find_cuda_compiler()


def test_cuda_home_is_the_first_choice_and_the_package_the_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: Script
) -> None:
    found = script(tmp_path / "path" / "nvcc", _NVCC)
    monkeypatch.setenv("PATH", str(found.parent))
    assert find_cuda_compiler() == Nvcc(found)

    monkeypatch.setattr(toolchain, "packaged_file", lambda name: tmp_path / name)
    assert find_cuda_compiler() == Nvcc(tmp_path / "nvcc")

    home = script(tmp_path / "home" / "bin" / "nvcc", _NVCC)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_cuda_compiler() == Nvcc(home)


def test_a_cuda_home_without_a_compiler_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))

    with pytest.raises(CompileError, match=f"CUDA_HOME is {tmp_path}, which has no bin/nvcc"):
        find_cuda_compiler()


@pytest.mark.parametrize("missing", ["nvcc", "cicc"])
def test_nvrtc_stands_for_an_nvcc_that_is_incomplete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str
) -> None:
    files = {name: tmp_path / name for name in _PACKAGED if name != missing}
    monkeypatch.setattr(toolchain, "packaged_file", files.get)

    assert find_cuda_compiler() == Nvrtc(tmp_path / "libnvrtc.so.13", tmp_path)


def test_a_compiler_is_known_by_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: Script
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    script(tmp_path / "bin" / "nvcc", _NVCC)

    assert backend_of("cuda").toolchain() == "nvcc 13.5.37"
    assert backend_of("cpu").toolchain() == backend_of("opencl").toolchain() == ""


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("echo nothing", "does not tell a version: 'nothing'"),
        ("echo broken; exit 3", "failed with status 3:\nbroken"),
    ],
)
def test_a_compiler_that_does_not_run_is_an_error(
    tmp_path: Path, script: Script, body: str, problem: str
) -> None:
    with pytest.raises(CompileError, match=problem):
        _ = Nvcc(script(tmp_path / "nvcc", body)).version


def test_a_compiler_that_is_no_program_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "nvcc").write_text("")

    with pytest.raises(CompileError, match=r"cannot run .*nvcc: Permission denied"):
        _ = Nvcc(tmp_path / "nvcc").version


def test_a_failed_compilation_has_the_output_of_the_compiler(
    tmp_path: Path, script: Script
) -> None:
    compiler = Nvcc(script(tmp_path / "nvcc", "echo 'kernels.cu(1): error: no such type'; exit 2"))

    with pytest.raises(CompileError, match=r"status 2:\nkernels.cu\(1\): error: no such type"):
        compiler.compile("half x;", "sm_90a")


def test_a_library_that_is_not_nvrtc_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "libnvrtc.so.13").write_text("")

    with pytest.raises(CompileError, match="cannot load NVRTC: "):
        _ = Nvrtc(tmp_path / "libnvrtc.so.13", tmp_path).version


def test_machine_code_survives_as_text() -> None:
    assert decode_program(encode_program(b"\x7fELF\0\xff")) == b"\x7fELF\0\xff"


@pytest.mark.parametrize(
    ("text", "problem"),
    [('extern "C" {', "the source of kernels"), ("aiomlc cubin AB", "is damaged")],
)
def test_text_that_is_no_machine_code_is_refused(text: str, problem: str) -> None:
    with pytest.raises(CompileError, match=problem):
        decode_program(text)


def test_a_gpu_gets_the_code_that_may_use_all_it_has() -> None:
    assert architecture_of("9.0") == "sm_90a"
    assert architecture_of("8.6") == "sm_86"
    assert architecture_of("6.1") is None
    assert all(name.startswith("sm_") for name in ARCHITECTURES)
