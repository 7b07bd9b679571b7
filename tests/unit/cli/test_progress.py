"""The line that moves while a model is loaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from anyio import create_task_group
from anyio.lowlevel import checkpoint

from aiomlc.cli.terminal.progress import ProgressLine
from aiomlc.cli.terminal.status_line import StatusLine
from aiomlc.runtime.loading.progress import LoadProgress
from tests.unit.cli.scene import FakeTerminal


@pytest.fixture(autouse=True)
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition is true; the test's time limit applies."""
    while not condition():
        await checkpoint()


async def test_a_bar_moves_and_is_removed() -> None:
    screen = FakeTerminal(is_terminal=True)
    line = ProgressLine(screen, delay=0)
    async with create_task_group() as tasks:
        tasks.start_soon(line.run)
        for percentage in (25, 50):
            line.show(LoadProgress("convert", percentage / 100, "packing the weights"))
            await wait_until(lambda: f"{percentage}%" in screen.getvalue())  # noqa: B023
        line.stop()

    assert "packing the weights" in screen.getvalue()
    erased = screen.getvalue().rsplit("50%", 1)[1]
    assert "\x1b[2K" in erased


async def test_a_previous_line_is_shown_until_the_line_appears_or_is_not_needed() -> None:
    for delay in (0, 60):
        screen = FakeTerminal(is_terminal=True)
        previous = StatusLine(screen)
        previous.show("starting")
        line = ProgressLine(screen, delay=delay, previous=previous)
        async with create_task_group() as tasks:
            tasks.start_soon(line.run)
            if delay:
                assert screen.getvalue() == "\rstarting"
            else:
                await wait_until(lambda: screen.getvalue() != "\rstarting")  # noqa: B023
            line.stop()
            tasks.cancel_scope.cancel()

        assert screen.getvalue().startswith("\rstarting\r        \r")
        assert screen.getvalue().count("starting") == 1


@pytest.mark.parametrize(("is_terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_a_status_line_needs_a_terminal_that_moves_its_cursor(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    screen = FakeTerminal(is_terminal=is_terminal)
    with StatusLine(screen) as line:
        line.show("starting")

    assert screen.getvalue() == ""


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("NO_COLOR", "1")])
async def test_a_terminal_without_escape_sequences_gets_a_line_for_each_kind_of_work(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    screen = FakeTerminal(is_terminal=True)
    line = ProgressLine(screen, delay=0)
    async with create_task_group() as tasks:
        tasks.start_soon(line.run)
        await wait_until(lambda: "opening the model\n" in screen.getvalue())
        line.show(LoadProgress("compile", 0.1, "compiling"))
        await wait_until(lambda: "compiling\n" in screen.getvalue())
        line.stop()

    assert screen.getvalue() == "opening the model\ncompiling\n"


@pytest.mark.parametrize(("is_terminal", "delay"), [(False, 0.0), (True, 60.0)])
async def test_no_line_is_drawn_without_a_terminal_or_before_the_delay(
    is_terminal: bool, delay: float
) -> None:
    screen = FakeTerminal(is_terminal=is_terminal)
    line = ProgressLine(screen, delay=delay)
    async with create_task_group() as tasks:
        tasks.start_soon(line.run)
        line.show(LoadProgress("load", 0.5, "loading"))
        line.stop()
        tasks.cancel_scope.cancel()

    assert screen.getvalue() == ""
