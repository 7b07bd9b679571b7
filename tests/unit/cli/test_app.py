"""The commands of the program with a scripted engine; tests/e2e runs them in a process."""

from __future__ import annotations

import errno
import os
import signal
from functools import partial
from typing import NoReturn

import pytest
from anyio import sleep_forever
from typer.testing import CliRunner

import aiomlc
from aiomlc import AsyncMLCEngine, ModelLoadError
from aiomlc.api.session.loader import Loader
from aiomlc.cli import terminal_chat
from aiomlc.cli.app import app
from aiomlc.cli.screen import Screen
from aiomlc.testing import FakeCore, fake_loader


async def truncated_weights(*_: object, **__: object) -> NoReturn:
    """A loader that fails as for a broken model."""
    raise ModelLoadError("weights.bin is truncated")


async def interrupted(*_: object, **__: object) -> NoReturn:
    """A loader during which the user presses Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        await sleep_forever()


def run(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], loader: Loader, stdin: str = ""
) -> tuple[int, str, str]:
    """Run the app with a fake model; return the exit code, stdout and stderr."""
    monkeypatch.setattr(terminal_chat, "AsyncMLCEngine", partial(AsyncMLCEngine, loader=loader))
    result = CliRunner().invoke(app, arguments, input=stdin)
    return result.exit_code, result.stdout, result.stderr


def test_the_prompt_and_the_options_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    core = FakeCore(["Hello!"])
    arguments = ["chat", "-p", "Hi", "--seed", "7", "--max-tokens", "4", "--temperature", "0.5"]

    assert run(monkeypatch, arguments, fake_loader(core)) == (0, "Hell\n", "")
    (options,) = core.options
    assert (options.seed, options.max_tokens, options.temperature) == (7, 4, 0.5)


@pytest.mark.parametrize("arguments", [[], ["-"], ["-p", "-"], ["some-model", "-p", "-"]])
def test_standard_input_is_one_prompt(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    core = FakeCore(["Hello!"])
    result = run(monkeypatch, ["chat", *arguments], fake_loader(core), stdin="Hi\nYou?\n")

    assert result == (0, "Hello!\n", "")
    (prompt,) = core.prompts
    assert b"user\nHi\nYou?<|im_end|>" in bytes(prompt)


def test_the_first_argument_is_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[object] = []

    async def load(model: object, **options: object) -> object:
        models.append(model)
        return await fake_loader()(model, **options)  # type: ignore[arg-type]

    run(monkeypatch, ["chat", "path/to/model", "-p", "Hi"], load)  # type: ignore[arg-type]

    assert models == ["path/to/model"]


def test_a_question_in_place_of_the_model_is_explained() -> None:
    result = CliRunner().invoke(app, ["chat", "Who are you?", "-p", "Hi"])

    assert result.exit_code == 1
    assert "the first argument is the model; give a question with -p" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_model_load_error_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run(monkeypatch, ["chat", "-p", "Hi"], truncated_weights)

    assert result == (1, "", "aiomlc: weights.bin is truncated\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--temperature", "-1"], "temperature: should be non-negative, got -1"),
        (["--max-tokens", "0"], "max_tokens: should be at least 1, got 0"),
        (["--kv-cache-dtype", "int4"], "--kv-cache-dtype must be one of 'auto', 'float16', "),
    ],
)
def test_a_value_out_of_range_is_exit_code_2_before_the_model_is_opened(
    monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    code, _, errors = run(monkeypatch, ["chat", "-p", "Hi", *options], truncated_weights)

    assert code == 2
    assert errors.startswith("aiomlc: ")
    assert message in errors


def test_ctrl_c_while_loading_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, ["chat", "-p", "Hi"], interrupted) == (130, "", "")


@pytest.mark.parametrize(
    ("number", "code", "errors"),
    [(errno.EPIPE, 141, ""), (errno.ENOSPC, 1, "aiomlc: No space left on device\n")],
)
def test_an_output_that_fails_is_one_line_at_most(
    monkeypatch: pytest.MonkeyPatch, number: int, code: int, errors: str
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(number, "No space left on device")

    monkeypatch.setattr(Screen, "write_answer", fail)

    assert run(monkeypatch, ["chat", "-p", "Hi"], fake_loader()) == (code, "", errors)


def test_debug_raises_the_original_error(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = partial(AsyncMLCEngine, loader=truncated_weights)
    monkeypatch.setattr(terminal_chat, "AsyncMLCEngine", engine)
    result = CliRunner().invoke(app, ["chat", "-p", "Hi", "--debug"])

    assert isinstance(result.exception, ModelLoadError)


@pytest.mark.parametrize(("arguments", "listed"), [([], "chat"), (["cache"], "verify")])
def test_without_a_command_the_help_is_shown(arguments: list[str], listed: str) -> None:
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0
    assert listed in result.stdout


def test_plan_prints_the_table_and_the_given_settings() -> None:
    result = CliRunner().invoke(app, ["plan", "--max-num-sequence", "3", "--mode", "server"])

    assert result.exit_code == 0
    assert result.stdout.startswith("pebble (q4f16_1), mode server\n")
    assert "max_num_sequence                     3      given" in result.stdout


def test_plan_shows_that_an_int8_cache_holds_more_tokens() -> None:
    def tokens(*more: str) -> int:
        result = CliRunner().invoke(app, ["plan", *more])
        line = next(line for line in result.stdout.splitlines() if "KV cache" in line)
        return int(line.split(" tokens of ")[1].split()[0].replace(",", ""))

    assert tokens("--kv-cache-dtype", "float16") == tokens()
    assert 1.7 < tokens() / tokens("--kv-cache-dtype", "int8") < 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--max-total-sequence-length", f"{2**40}"], 1, "MORE THAN THE BUDGET"),
        (["--mode", "tiny"], 2, "got 'tiny'"),
        (["--kv-cache-dtype", "int4"], 2, "got 'int4'"),
    ],
)
def test_an_impossible_plan_is_an_error(arguments: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(app, ["plan", *arguments])

    assert result.exit_code == code
    assert message in result.stderr


def test_version_prints_the_package_versions() -> None:
    result = CliRunner().invoke(app, ["version"])

    assert result.exit_code == 0
    assert result.stdout.startswith("aiomlc ")
    assert "apache-tvm " in result.stdout


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_option_prints_the_version(option: str) -> None:
    result = CliRunner().invoke(app, [option])

    assert (result.exit_code, result.stdout) == (0, f"aiomlc {aiomlc.__version__}\n")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_commands(option: str) -> None:
    result = CliRunner().invoke(app, [option])

    assert result.exit_code == 0
    assert "chat" in result.stdout
