"""The check of a driver in a process of its own, on Intel's driver for processors."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.cli.jobs.doctor_devices import check_devices
from aiomlc.runtime.loading.auto_device import ProcessChecks, select_device
from aiomlc.runtime.native.opencl import OpenCLDevice
from tests.model.opencl.conftest import driver_folder

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("model_cache")]


@pytest.fixture(autouse=True)
def driver(opencl: OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> OpenCLDevice:
    """Let the processes of the checks find the driver; return its device."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_folder()))
    return opencl


def test_the_doctor_lists_the_device_and_its_self_test_passes(driver: OpenCLDevice) -> None:
    findings = {finding.topic: finding for finding in check_devices(ProcessChecks())}

    finding = findings["opencl:0"]
    assert finding.text.startswith(
        f"{driver.name}, {driver.platform} {driver.driver_version}, cpu, "
    )
    assert finding.text.endswith("; the self-test passed")
    assert finding.remedy is None


def test_auto_never_selects_a_processor(tmp_path: Path, driver: OpenCLDevice) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()

    selection = select_device(ProcessChecks(), tmp_path)

    assert selection.device == "cpu"
    assert selection.reasons[-1] == (
        f"opencl:0 ({driver.name}, {driver.platform} {driver.driver_version}): its type is cpu"
    )


def test_a_driver_that_cannot_test_in_time_is_refused() -> None:
    checks = ProcessChecks(test_seconds=0.1)

    assert checks.test("opencl:0") == "its driver does not answer within 0.1 seconds"


def test_an_absent_device_is_refused_by_its_test() -> None:
    assert "opencl:7; this machine has opencl:0" in (ProcessChecks().test("opencl:7") or "")
