"""The device that `auto` names: which one is selected, and drivers that crash, hang or talk."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier

import pytest
from anyio import create_task_group, to_thread

from aiomlc import BadRequestError, CompileError
from aiomlc.runtime.loading import auto_device
from aiomlc.runtime.loading.auto_device import (
    Listing,
    ProcessChecks,
    Selection,
    first_device,
    has_gpu_files,
    open_on_device,
    select_device,
)
from aiomlc.runtime.native.device import DeviceReport

NO_DRIVER = Listing((), "no driver")


def _report(device: str, kind: str = "gpu", problem: str | None = None) -> DeviceReport:
    return DeviceReport(
        device=device,
        kind=kind,
        name="a device",
        driver="a driver 1.2",
        memory_bytes=1 << 30,
        problem=problem,
    )


@dataclass
class FakeChecks:
    """Drivers that list these devices, some of which compute wrong."""

    listings: Mapping[str, Listing]
    failures: Mapping[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def devices(self, kind: str) -> Listing:
        self.asked.append(kind)
        return self.listings.get(kind, NO_DRIVER)

    def test(self, device: str) -> str | None:
        self.asked.append(device)
        return self.failures.get(device)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a system with the device file of a GPU."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD128").touch()
    return tmp_path


def _listing(*reports: DeviceReport) -> Listing:
    return Listing(reports)


def test_cuda_comes_before_opencl_which_is_not_asked(root: Path) -> None:
    both = {"cuda": _listing(_report("cuda:0")), "opencl": _listing(_report("opencl:0"))}
    checks = FakeChecks(both)

    assert select_device(checks, root) == Selection("cuda:0", ())
    assert checks.asked == ["cuda", "cuda:0"]


def test_a_gpu_of_opencl_is_next_and_the_log_says_why(root: Path) -> None:
    opencl = _listing(_report("opencl:0", "cpu"), _report("opencl:1"))

    selection = select_device(FakeChecks({"opencl": opencl}), root)

    assert selection.device == "opencl:1"
    assert str(selection) == (
        "opencl:1; cuda: no driver; opencl:0 (a device, a driver 1.2): its type is cpu"
    )


def test_a_device_that_fails_its_test_or_is_too_old_is_passed_over(root: Path) -> None:
    cuda = _listing(_report("cuda:0", problem="too old"), _report("cuda:1"), _report("cuda:2"))
    checks = FakeChecks({"cuda": cuda}, {"cuda:1": "wrong attention"})

    selection = select_device(checks, root)

    assert selection.device == "cuda:2"
    assert [reason.rpartition(": ")[2] for reason in selection.reasons] == [
        "too old",
        "wrong attention",
    ]
    assert checks.asked == ["cuda", "cuda:1", "cuda:2"]


@pytest.mark.parametrize("kind", ["cpu", "accelerator", "other"])
def test_opencl_devices_that_are_no_gpus_are_neither_tested_nor_selected(
    root: Path, kind: str
) -> None:
    checks = FakeChecks({"opencl": _listing(_report("opencl:0", kind))})

    assert select_device(checks, root).device == "cpu"
    assert checks.asked == ["cuda", "opencl"]


def test_without_the_device_file_of_a_gpu_no_driver_is_asked(tmp_path: Path) -> None:
    checks = FakeChecks({"cuda": _listing(_report("cuda:0"))})

    assert str(select_device(checks, tmp_path)) == ("cpu; the system has no device file of a GPU")
    assert checks.asked == []


@pytest.mark.parametrize("name", ["nvidia0", "dxg", "dri/renderD129", "kfd", "mali0", "kgsl-3d0"])
def test_device_files_of_gpus_are_found(tmp_path: Path, name: str) -> None:
    path = tmp_path / "dev" / name
    path.parent.mkdir(parents=True)
    path.touch()

    assert has_gpu_files(tmp_path)
    path.rename(path.with_name("sda"))
    assert not has_gpu_files(tmp_path)


async def test_the_drivers_are_checked_once_in_a_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[None] = []
    started = Barrier(2)

    def select(_: object) -> Selection:
        calls.append(None)
        return Selection("cpu", ("no GPU",))

    def get() -> None:
        started.wait()
        results.append(auto_device.selected_device())

    results: list[Selection] = []
    monkeypatch.setattr(auto_device, "_memo", auto_device.SelectionMemo())
    monkeypatch.setattr(auto_device, "select_device", select)
    with caplog.at_level(logging.INFO, "aiomlc"):
        async with create_task_group() as tasks:
            tasks.start_soon(to_thread.run_sync, get)
            tasks.start_soon(to_thread.run_sync, get)

    assert len(calls) == 1
    assert results == [Selection("cpu", ("no GPU",))] * 2
    assert caplog.messages.count("device 'auto': cpu; no GPU") == 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Select a GPU for `auto`; return the list of devices that a test opens."""
    monkeypatch.setattr(auto_device, "selected_device", lambda: Selection("cuda:0", ()))
    return []


@pytest.mark.parametrize(
    ("device", "refused", "expected"),
    [
        ("auto", (), ["cuda:0"]),
        ("auto", ("cuda:0",), ["cuda:0", "cpu"]),
        ("cpu", (), ["cpu"]),
        ("opencl:1", (), ["opencl:1"]),
    ],
)
async def test_a_model_that_a_gpu_refuses_is_opened_on_the_cpu(
    opened: list[str],
    caplog: pytest.LogCaptureFixture,
    device: str,
    refused: tuple[str, ...],
    expected: list[str],
) -> None:
    def use(name: str) -> str:
        opened.append(name)
        if name in refused:
            raise CompileError("no compiler")

        return name

    async def open_on(name: str) -> str:
        return use(name)

    assert await open_on_device(device, open_on) == expected[-1]
    assert first_device(device, use) == expected[-1]
    assert opened == expected * 2
    warning = "device 'auto': cuda:0 is not used, the CPU is: no compiler"
    assert caplog.messages.count(warning) == 2 * len(refused)


@pytest.mark.parametrize("device", ["auto", "cuda:0"])
async def test_the_error_of_the_last_device_is_raised(opened: list[str], device: str) -> None:
    def use(name: str) -> None:
        opened.append(name)
        raise BadRequestError(f"refused on {name}", param="device")

    async def open_on(name: str) -> None:
        use(name)

    last = "cpu" if device == "auto" else device
    with pytest.raises(BadRequestError, match=f"refused on {last}"):
        await open_on_device(device, open_on)

    with pytest.raises(BadRequestError, match=f"refused on {last}"):
        first_device(device, use)


CRASH = "import os, signal, sys; sys.stderr.write('in the driver'); os.kill(os.getpid(), {})"


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (CRASH.format("signal.SIGKILL"), "its driver fails: SIGKILL: in the driver"),
        ("import threading; threading.Event().wait()", "does not answer within 0.5 seconds"),
        ("raise SystemExit(3)", "its driver fails: exit status 3"),
        ("raise OSError('lost')", "its driver fails: exit status 1: OSError: lost"),
        ("print('a driver that talks')", "its driver fails: exit status 0"),
    ],
)
def test_a_driver_that_crashes_or_hangs_has_a_problem_and_no_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, problem: str
) -> None:
    (tmp_path / "spoiled_driver.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    seconds = 0.5 if "0.5" in problem else 15.0
    checks = ProcessChecks(module="spoiled_driver", listing_seconds=seconds, test_seconds=seconds)

    listing = checks.devices("opencl")

    assert listing.devices == ()
    assert listing.problem is not None
    assert problem in listing.problem
    assert problem in (checks.test("opencl:0") or "")


def test_devices_come_out_of_the_process_beside_what_the_driver_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talking_driver.py").write_text(
        """
import sys
from aiomlc.workers.parent import write_message
print("a driver that talks")
fields = dict(
    device="opencl:0", kind="gpu", name="a device", driver=sys.argv[2], memory_bytes=1, problem=None
)
write_message(devices=[fields], problem=None)
print("{a driver that talks at its end}")
print("{}")
"""
    )
    monkeypatch.syspath_prepend(tmp_path)

    (report,) = ProcessChecks(module="talking_driver").devices("opencl").devices

    assert str(report) == "opencl:0 (a device, opencl)"
    assert report.memory_bytes == 1


def test_a_missing_loader_and_an_unknown_index_are_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOMLC_OPENCL_LOADER", "/missing/libOpenCL.so.1")
    checks = ProcessChecks()

    assert "the OpenCL loader cannot be opened: /missing/libOpenCL.so.1" in (
        checks.devices("opencl").problem or ""
    )
    assert "the OpenCL loader cannot be opened" in (checks.test("opencl:0") or "")
