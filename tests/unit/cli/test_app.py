"""The commands of the program with a scripted engine; tests/e2e runs them in a process."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from anyio import sleep_forever
from typer.testing import CliRunner

import aiomlc
from aiomlc import AsyncMLCEngine, ModelLoadError
from aiomlc.api.session.loader import Loader
from aiomlc.cli.app import app
from aiomlc.cli.chat import terminal_chat
from aiomlc.cli.terminal.screen import Screen
from aiomlc.cli.terminal.tables import fit_table
from aiomlc.config import BUNDLED_MODEL
from aiomlc.testing import FakeCore, fake_loader
from tests.model.tiny_encoder import write_encoder
from tests.unit.cli.scene import FakeTerminal


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
    arguments += ["--top-k", "3"]

    assert run(monkeypatch, arguments, fake_loader(core)) == (0, "Hell\n", "")
    (options,) = core.options
    assert (options.seed, options.max_tokens, options.temperature) == (7, 4, 0.5)
    assert options.top_k == 3


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


def test_a_question_in_place_of_the_model_without_another_is_explained_once() -> None:
    result = CliRunner().invoke(app, ["chat", "Who are you?"])

    expected = "the prompt is empty: the first argument is the model; give a question with -p"
    assert (result.exit_code, result.stderr) == (2, f"aiomlc: {expected}\n")


@pytest.mark.parametrize("words", [["What", "is", "up?"], ["pebble", "What is up?"]])
def test_a_question_after_the_model_is_explained(words: list[str]) -> None:
    result = CliRunner().invoke(app, ["chat", *words])

    assert result.exit_code == 2
    assert result.stderr == ("aiomlc: the first argument is the model; give a question with -p\n")


def test_a_command_of_another_program_is_answered_with_ours() -> None:
    result = CliRunner().invoke(app, ["run", "llama3"])

    assert result.exit_code == 2
    assert "No such command 'run': use aiomlc chat" in result.stderr


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--max-model-len=100", 'use --overrides "context_window_size=N"'),
        ("--max-num-seqs", 'use --overrides "max_num_sequence=N"'),
        ("--enable-prefix-caching", "leave it out, the prefix cache is on"),
        ("--threads", 'use --overrides "num_threads=N"'),
    ],
)
@pytest.mark.parametrize("command", ["chat", "serve", "bench", "plan", "batch"])
def test_an_option_of_another_program_is_answered_with_ours(
    command: str, option: str, hint: str
) -> None:
    result = CliRunner().invoke(app, [command, option])

    assert result.exit_code == 2
    assert f"No such option {option.partition('=')[0]}: {hint}" in result.stderr


@pytest.mark.parametrize("command", ["chat", "serve", "plan", "show", "bench", "batch a b"])
def test_every_command_takes_a_model_by_position_and_by_name(command: str) -> None:
    arguments = command.split()
    result = CliRunner().invoke(app, [*arguments, "one", "--model", "two"], input="Hi")

    assert result.exit_code == 2
    assert "give the model as an argument or by --model, not both" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        *("chat -p Hi", "serve", "plan", "bench", "batch a b", "compile pebble -o x.lib"),
        "convert pebble -o x --quantization q4f16_1",
    ],
)
def test_every_command_that_opens_a_model_takes_a_device(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--device", "warp"])

    assert result.exit_code == 2
    assert "Invalid device name: 'warp'; use 'auto', 'cpu', 'cuda' or 'opencl'" in result.stderr


def test_the_shell_completes_commands() -> None:
    variables = {"COMP_WORDS": "aiomlc ba", "COMP_CWORD": "1", "_AIOMLC_COMPLETE": "complete_bash"}
    result = CliRunner().invoke(app, [], env=variables, prog_name="aiomlc")

    assert result.stdout == "batch\n"


@pytest.mark.parametrize("columns", [40, 60, 200])
def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    rows = [("kind", "model"), ("weights", f"/home/{'user/' * 30}model"), ("libraries", "llama")]
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout", FakeTerminal(is_terminal=True))

    lines = fit_table(rows, column=1).splitlines()

    assert max(map(len, lines)) <= columns
    assert lines[1].endswith("/model")
    assert ("…" in lines[1]) == (columns < 180)


def test_an_unknown_quantization_names_those_to_choose_from() -> None:
    result = CliRunner().invoke(app, ["chat", "-p", "Hi", "--quantization", "q9"])

    assert result.exit_code == 2
    assert (
        "--quantization must be one of 'q4f16_1', 'w4a8', 'w8a8', 'q8_0', 'q0f32', 'q0f16', "
        "'q0bf16'" in result.stderr
    )
    assert "awq" not in result.stderr


def test_a_model_is_shown_from_its_files(tmp_path: Path) -> None:
    for file in BUNDLED_MODEL.glob("*"):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "README.md").write_text("---\ntags: [x]\nlicense: apache-2.0\n---\nlicense: no\n")

    text = CliRunner().invoke(app, ["show", str(tmp_path)]).stdout
    values = json.loads(CliRunner().invoke(app, ["show", str(tmp_path), "--json"]).stdout)
    template = CliRunner().invoke(app, ["show", "--template"]).stdout

    assert re.search(r"^parameters +4,737,792$", text, re.M)
    assert re.search(r"^license +apache-2.0$", text, re.M)
    assert re.search(r"^defaults +temperature 0.3, top_p 0.95", text, re.M)
    assert values["context_length"] == 2048
    assert values["chat_template"] == template.removesuffix("\n")


def test_an_encoder_is_shown_with_the_sizes_of_inputs_and_vectors(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")

    text = CliRunner().invoke(app, ["show", str(encoder)]).stdout
    values = json.loads(CliRunner().invoke(app, ["show", str(encoder), "--json"]).stdout)

    assert re.search(r"^type +encoder$", text, re.M)
    assert re.search(r"^context +32 tokens at most$", text, re.M)
    assert re.search(r"^dimensions +48$", text, re.M)
    assert (values["dimensions"], values["pooling"]) == (48, "mean")


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
        (["--kv-cache-dtype", "int2"], "--kv-cache-dtype must be one of 'auto', 'float16', "),
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
    assert "..." not in result.stdout.partition("Commands:")[2]  # No summary is cut off.


def test_plan_prints_the_table_and_the_given_settings() -> None:
    result = CliRunner().invoke(app, ["plan", "--max-num-sequence", "3", "--mode", "server"])

    assert result.exit_code == 0
    assert result.stdout.startswith("pebble (q4f16_1), mode server\n")
    assert "max_num_sequence                     3      given" in result.stdout


def test_plan_takes_overrides() -> None:
    overrides = "context_window_size=96;gpu_memory_utilization=0.5"
    result = CliRunner().invoke(app, ["plan", "--overrides", overrides])

    assert "max_single_sequence_length          96      given" in result.stdout
    assert "  50% of " in result.stdout


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
        (["--mode", "tiny"], 2, "'tiny' is not one of 'local', 'interactive', 'server'"),
        (["--kv-cache-dtype", "int2"], 2, "got 'int2'"),
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
