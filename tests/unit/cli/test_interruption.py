"""Ctrl-C at a terminal."""

from __future__ import annotations

import io
import os
import pty
import termios

import pytest

from aiomlc.cli.terminal.interruption import quiet_interrupts


def local_modes(descriptor: int) -> int:
    modes: int = termios.tcgetattr(descriptor)[3]
    return modes


def test_ctrl_c_drops_no_output_and_is_not_echoed_during_an_answer() -> None:
    other_end, descriptor = pty.openpty()
    with os.fdopen(descriptor) as terminal, os.fdopen(other_end):
        before = local_modes(descriptor)
        assert before & termios.ECHOCTL
        assert not before & termios.NOFLSH
        with quiet_interrupts(terminal):
            during = local_modes(descriptor)

        assert during == (before & ~termios.ECHOCTL) | termios.NOFLSH
        assert local_modes(descriptor) == before


def test_an_input_that_is_no_terminal_is_left_as_it_is() -> None:
    with quiet_interrupts(io.StringIO()):
        pass


def test_the_terminal_of_another_group_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting it would stop a program in the background."""
    other_end, descriptor = pty.openpty()
    with os.fdopen(descriptor) as terminal, os.fdopen(other_end):
        before = local_modes(descriptor)
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
        with quiet_interrupts(terminal):
            assert local_modes(descriptor) == before
        monkeypatch.undo()

        with quiet_interrupts(terminal):
            during = local_modes(descriptor)
            monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)

        assert local_modes(descriptor) == during != before
