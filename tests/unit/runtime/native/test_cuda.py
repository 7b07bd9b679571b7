"""CUDA devices: their facts as TVM tells them, and what is missing where there are none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from aiomlc import BadRequestError, ModelLoadError
from aiomlc.runtime.loading.device import find_target
from aiomlc.runtime.native import cuda
from aiomlc.runtime.native.cuda import (
    CudaArchitecture,
    CudaDevice,
    cuda_device,
    cuda_reports,
    load_cuda,
)
from aiomlc.runtime.native.library import has_global

_CALLBACK = "tvm_callback_cuda_compile"
ATTRIBUTES = {4: "9.0", 5: "NVIDIA H100", 14: 80 << 30, 15: 70 << 30}
DEVICE = CudaDevice(
    index=1,
    name="NVIDIA H100",
    architecture=CudaArchitecture("sm_90a"),
    memory_bytes=80 << 30,
    free_bytes=70 << 30,
)

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that puts GPUs with the given attributes into this machine."""

    def install_gpus(count: int = 2, attributes: dict[int, object] = ATTRIBUTES) -> None:
        functions: dict[str, Callable[..., object]] = {
            "runtime.GetCudaDeviceCount": lambda: count,
            "runtime.GetDeviceAttr": lambda kind, index, name: attributes[name],
        }
        monkeypatch.setattr(cuda, "load_cuda", lambda: None)
        monkeypatch.setattr(cuda, "native_function", functions.__getitem__)
        monkeypatch.setattr(cuda, "_driver_version", lambda: "a driver for CUDA 13.0")

    return install_gpus


def test_a_device_has_what_the_driver_tells(install: Install) -> None:
    install()

    device = cuda_device(1)

    assert device == DEVICE
    assert str(device) == "cuda:1 (NVIDIA H100, sm_90a)"
    assert device.dlpack == (2, 1)
    assert device.memory.free_bytes == 70 << 30
    assert device.target["arch"] == "sm_90a"
    assert device.target["thread_warp_size"] == 32


def test_an_absent_index_is_refused_with_the_gpus_that_there_are(install: Install) -> None:
    install(1)

    with pytest.raises(BadRequestError, match=r"cuda:3; this machine has cuda:0 \(") as caught:
        cuda_device(3)

    assert caught.value.param == "device"


def test_a_machine_without_gpus_is_an_error(install: Install) -> None:
    install(0)

    with pytest.raises(BadRequestError, match="finds no GPU: see CUDA_VISIBLE_DEVICES"):
        cuda_device(0)


def test_a_gpu_that_cuda_13_does_not_support_is_refused(install: Install) -> None:
    install(attributes=ATTRIBUTES | {4: "6.1"})

    with pytest.raises(BadRequestError, match=r"NVIDIA H100, 6\.1, is not supported"):
        cuda_device(0)


@pytest.mark.parametrize(
    ("capability", "problem"), [("9.0", None), ("6.1", r"NVIDIA H100, 6.1, is not supported")]
)
def test_reports_have_the_facts_also_of_gpus_that_are_refused(
    install: Install, capability: str, problem: str | None
) -> None:
    install(1, ATTRIBUTES | {4: capability})

    (report,) = cuda_reports()

    assert str(report) == "cuda:0 (NVIDIA H100, a driver for CUDA 13.0)"
    assert (report.kind, report.memory_bytes) == ("gpu", 80 << 30)
    assert (report.problem is None) == (problem is None)
    assert (problem or "") in (report.problem or "")


def test_a_failure_of_the_driver_is_an_error_with_its_name(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise RuntimeError("CUDA Runtime Error: cudaErrorInsufficientDriver (35): too old")

    install()
    monkeypatch.setattr(cuda, "native_function", lambda _: fail)

    with pytest.raises(BadRequestError, match=r"InsufficientDriver .*\(580 or later\)") as caught:
        cuda_device(0)

    assert caught.value.param == "device"


@pytest.mark.parametrize(
    ("missing", "error", "problem"),
    [
        ("libcuda.so.1", BadRequestError, "driver is missing: .*: install the driver of the GPU"),
        ("libcudart.so.13", BadRequestError, r"runtime is missing: .*'aiomlc\[cuda\]'"),
        ("libtvm_runtime_cuda.so", ModelLoadError, "cannot load a native library"),
    ],
)
def test_a_missing_library_is_an_error_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str, error: type[Exception], problem: str
) -> None:
    def load(path: str, _: int) -> None:
        if Path(path).name == missing:
            raise OSError(f"{missing}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(cuda, "load_native", lambda: None)
    load_cuda.cache_clear()

    with pytest.raises(error, match=problem):
        load_cuda()


def test_a_lack_of_memory_is_a_memory_error_and_other_failures_are_not() -> None:
    message = r"does not fit on cuda:1 \(NVIDIA H100"
    with pytest.raises(MemoryError, match=message), DEVICE.opening():
        raise ModelLoadError("CUDA Runtime Error: cudaErrorMemoryAllocation (2): out of memory")

    with pytest.raises(ModelLoadError, match="no function"), DEVICE.opening():
        raise ModelLoadError("the library has no function")


def test_a_model_is_opened_with_its_machine_code_and_leaves_nothing_registered() -> None:
    before = has_global(_CALLBACK)
    with DEVICE.opening():
        assert has_global(_CALLBACK)

    assert has_global(_CALLBACK) == before


@pytest.mark.parametrize(
    ("device", "arch", "problem", "param"),
    [
        ("cuda", "sm_91", r"arch must be one of sm_75, .*sm_90a.*, got 'sm_91'", "arch"),
        ("cuda:1", "", "got ''", "arch"),
        ("cpu", "sm_90a", "arch is for device 'cuda', and the device is 'cpu'", "arch"),
        ("opencl", "sm_90a", "arch is for device 'cuda'", "arch"),
    ],
)
def test_an_architecture_that_does_not_exist_is_refused(
    device: str, arch: str, problem: str, param: str
) -> None:
    with pytest.raises(BadRequestError, match=problem) as caught:
        find_target(device, arch)

    assert caught.value.param == param


def test_an_absent_gpu_needs_an_architecture(install: Install) -> None:
    install(0)

    with pytest.raises(BadRequestError, match=r"that is absent, pass its arch \(--arch sm_90a\)"):
        find_target("cuda", None)

    assert find_target("cuda", "sm_80").target["arch"] == "sm_80"
