"""Errors of options, which typer has from pydantic: every option of every command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from aiomlc.cli.app import app
from tests.unit.api.protocol.wrong_values import has_pydantics_words

PROGRAM: Any = typer.main.get_command(app)
VALUES = ("fast", "-1", "1e99", "nan", "")


def commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


def given(parameter: Any, value: str) -> list[str]:  # noqa: ANN401
    return [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]


def error_of(arguments: list[str]) -> str | None:
    try:
        PROGRAM.main(arguments, prog_name="aiomlc", standalone_mode=False)
    except typer.BadParameter as error:
        return error.format_message()

    return None


def test_the_error_of_an_option_has_no_words_of_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    rejected: set[str] = set()
    for path, command in commands(PROGRAM):
        monkeypatch.setattr(command, "callback", lambda **_: None)
        needed = [text for each in command.params if each.required for text in given(each, "x")]
        for option in (each for each in command.params if getattr(each, "is_flag", None) is False):
            for value in VALUES:
                arguments = [*path, *needed, *given(option, value)]
                if (error := error_of(arguments)) is not None:
                    assert not has_pydantics_words(error), arguments
                    rejected.add(f"{' '.join(path)} {option.opts[0]}")

    assert {"serve --mode", "serve --port", "chat --top-k"} <= rejected
