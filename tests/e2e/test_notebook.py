"""The example notebook, whose cells run as in a kernel: one task each in a running event loop."""

from __future__ import annotations

import ast
import json
from collections.abc import Awaitable
from inspect import CO_COROUTINE
from types import CodeType
from typing import Any

import pytest
from anyio import create_task_group, fail_after

from tests.e2e.programs import ROOT

NOTEBOOK = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


async def run_cell(source: str, names: dict[str, Any]) -> None:
    code = compile(source, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, CodeType)
    result: Awaitable[None] | None = eval(code, names)
    if code.co_flags & CO_COROUTINE:
        assert result is not None, "a cell with await gives a coroutine"
        await result


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_cell_runs_in_the_event_loop_of_a_kernel(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, Any] = {}
    outputs = []
    for source in CODE:
        with fail_after(60):
            async with create_task_group() as tasks:
                tasks.start_soon(run_cell, source, names)

        outputs.append(capsys.readouterr().out)

    _, stream, many, end = outputs
    assert "Pebble" in stream
    assert sorted(line.split("?")[0] for line in many.splitlines()) == [
        f"What is {number} plus 5" for number in range(8)
    ]
    assert "None" not in many
    assert end == ""


def test_notebook_contains_no_output() -> None:
    for cell in NOTEBOOK["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
