"""The command `aiomlc doctor`."""

from __future__ import annotations

__all__ = ("doctor",)

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from aiomlc.cli.options.common import Debug
from aiomlc.cli.terminal.failures import report_failures
from aiomlc.cli.terminal.tables import format_table

if TYPE_CHECKING:
    from aiomlc.cli.jobs.doctor_checks import Finding
    from aiomlc.cli.jobs.doctor_speed import Speed


def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    benchmark: Annotated[bool, typer.Option(help="Measure the speed, in 3 seconds.")] = True,
    debug: Debug = False,
) -> None:
    """Show what an engine gets on this computer, and what to change."""
    with report_failures(debug=debug):
        from aiomlc.cli.jobs import doctor_checks as checks
        from aiomlc.cli.jobs.doctor_devices import check_devices
        from aiomlc.cli.jobs.doctor_speed import measure_speed
        from aiomlc.runtime.loading.auto_device import ProcessChecks
        from aiomlc.runtime.native.platform import physical_cores

        findings = [
            checks.check_versions(),
            checks.check_processor(),
            checks.check_cores(),
            checks.check_memory(),
            *check_devices(ProcessChecks()),
            checks.check_huge_pages(),
            checks.check_cache(),
        ]
        speed = measure_speed(physical_cores()) if benchmark else None
        typer.echo(_to_json(findings, speed) if as_json else _to_text(findings, speed))


def _to_json(findings: list[Finding], speed: Speed | None) -> str:
    fields = {
        "findings": [asdict(finding) for finding in findings],
        "speed": None if speed is None else asdict(speed),
    }
    return json.dumps(fields, indent=2)


def _to_text(findings: list[Finding], speed: Speed | None) -> str:
    rows = [(finding.topic, finding.text) for finding in findings]
    if speed is not None:
        decode = speed.decode_gb_s / speed.memory_gb_s
        prefill = speed.prefill_gop_s / speed.int8_gop_s
        rows += [
            ("memory speed", f"{speed.memory_gb_s:.1f} GB/s with threads: {speed.threads}"),
            ("decode kernel", f"{speed.decode_gb_s:.1f} GB/s of 4-bit weights, {decode:.0%}"),
            ("int8 speed", f"{speed.int8_gop_s:,.0f} Gop/s of dot products in the cache"),
            ("prefill kernel", f"{speed.prefill_gop_s:,.0f} Gop/s of 4-bit weights, {prefill:.0%}"),
        ]

    remedies = [f"{item.topic}: {item.remedy}" for item in findings if item.remedy is not None]
    changes = "\n".join(["", "To change:", *remedies]) if remedies else "\nNothing to change."
    return format_table(rows) + "\n" + changes
