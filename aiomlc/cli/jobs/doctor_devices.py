"""The devices in `aiomlc doctor`: what each is, and whether it computes right."""

from __future__ import annotations

__all__ = ("check_devices",)

from collections.abc import Iterator
from typing import Final

from aiomlc.cli.jobs.doctor_checks import Finding
from aiomlc.cli.terminal.tables import format_bytes
from aiomlc.runtime.loading.auto_device import DeviceChecks
from aiomlc.runtime.native.device import DeviceReport

_KINDS: Final = ("cuda", "opencl")


def check_devices(checks: DeviceChecks) -> Iterator[Finding]:
    """Yield each device with its name, driver, memory and self-test, or why a kind has none.

    No engine needs one, so only a GPU that is refused has a remedy.
    """
    for kind in _KINDS:
        listing = checks.devices(kind)
        if listing.problem is not None:
            yield Finding(kind, f"none: {listing.problem}")
        for report in listing.devices:
            yield _finding(report, checks)


def _finding(report: DeviceReport, checks: DeviceChecks) -> Finding:
    memory = format_bytes(report.memory_bytes)
    text = f"{report.name}, {report.driver}, {report.kind}, {memory}"
    problem = report.problem or checks.test(report.device)
    if problem is None:
        return Finding(report.device, f"{text}; the self-test passed")

    remedy = problem if report.kind == "gpu" else None
    return Finding(report.device, f"{text}; refused: {problem}", remedy)
