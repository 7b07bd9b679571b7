"""The devices that `aiomlc doctor` lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aiomlc.cli.jobs.doctor_checks import Finding
from aiomlc.cli.jobs.doctor_devices import check_devices
from aiomlc.runtime.loading.auto_device import Listing
from aiomlc.runtime.native.device import DeviceReport

GPU = DeviceReport(
    device="cuda:0",
    kind="gpu",
    name="NVIDIA H100",
    driver="a driver for CUDA 13.0",
    memory_bytes=80 * 10**9,
)
OLD = replace(GPU, device="cuda:1", name="NVIDIA P100", problem="6.0 is not supported")
CPU = DeviceReport(
    device="opencl:0", kind="cpu", name="AMD EPYC", driver="PoCL 3.1", memory_bytes=24 * 10**9
)


@dataclass
class FakeChecks:
    """Drivers with these devices; the kinds without any have none."""

    devices_of: dict[str, tuple[DeviceReport, ...]]
    problem: str | None = None

    def devices(self, kind: str) -> Listing:
        devices = self.devices_of.get(kind, ())
        return Listing(devices, None if devices else f"no driver of {kind}")

    def test(self, device: str) -> str | None:
        return self.problem


def test_each_device_has_its_name_driver_memory_and_self_test() -> None:
    findings = list(check_devices(FakeChecks({"cuda": (GPU,), "opencl": (CPU,)})))

    assert findings == [
        Finding(
            "cuda:0",
            "NVIDIA H100, a driver for CUDA 13.0, gpu, 80.0 GB; the self-test passed",
        ),
        Finding("opencl:0", "AMD EPYC, PoCL 3.1, cpu, 24.0 GB; the self-test passed"),
    ]


def test_a_refused_device_has_the_reason_and_a_gpu_a_remedy() -> None:
    checks = FakeChecks({"cuda": (GPU, OLD), "opencl": (CPU,)}, "its driver computes wrong rows")

    gpu, old, cpu = check_devices(checks)

    assert gpu.text.endswith("; refused: its driver computes wrong rows")
    assert gpu.remedy == "its driver computes wrong rows"
    assert old.text.endswith("80.0 GB; refused: 6.0 is not supported")
    assert cpu.text.endswith("; refused: its driver computes wrong rows")
    assert cpu.remedy is None


def test_a_kind_without_devices_has_the_reason() -> None:
    assert list(check_devices(FakeChecks({}))) == [
        Finding("cuda", "none: no driver of cuda"),
        Finding("opencl", "none: no driver of opencl"),
    ]
