"""The command line with a scripted engine; tests/e2e runs it in a process and in a terminal."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn, final

import pytest
from anyio.from_thread import start_blocking_portal
from typer.testing import CliRunner

import aiomlc
from aiomlc import AsyncMLCEngine, ModelLoadError
from aiomlc.api.session.loader import Loader
from aiomlc.cli import history, terminal_chat
from aiomlc.cli.app import app
from aiomlc.cli.chat_session import ChatSession, ResponseStatistics
from aiomlc.cli.progress import ProgressDisplay
from aiomlc.cli.terminal_chat import TerminalChat
from aiomlc.errors import EngineDeadError
from aiomlc.runtime.loading.loaded_model import LoadProgress
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore, fake_loader


@final
class Screen(io.StringIO):
    """A terminal that sends SIGINT (Ctrl-C) when its output ends with a given string."""

    def __init__(self, *, interrupt_after: str | None = None, is_terminal: bool = False) -> None:
        super().__init__()
        self._interrupt_after = interrupt_after
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        if self._interrupt_after is not None and self.getvalue().endswith(self._interrupt_after):
            self._interrupt_after = None
            os.kill(os.getpid(), signal.SIGINT)
        return count


@final
class Scene:
    """A terminal chat on a fake core, with its captured output."""

    def __init__(
        self, core: FakeCore, engine: AsyncMLCEngine, make_terminal: Callable[..., TerminalChat]
    ) -> None:
        self.core = core
        self.engine = engine
        self.output = Screen()
        self.notes = Screen()
        self.session = ChatSession(engine, options={"max_tokens": 50})
        self._make_terminal = make_terminal

    @property
    def terminal(self) -> TerminalChat:
        return self._make_terminal(
            self.session, self.output, self.notes, statistics=self.engine.statistics
        )


@contextmanager
def make_scene(core: FakeCore) -> Iterator[Scene]:
    engine = AsyncMLCEngine(loader=fake_loader(core))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(engine):
        yield Scene(core, engine, lambda *args, **kwargs: TerminalChat(portal, *args, **kwargs))


def scripted_lines(*script: str | type[BaseException]) -> Callable[[], str]:
    """Return a `read_line` that returns or raises the items of a script, and then EOFError."""
    remaining = iter(script)

    def read_line() -> str:
        line = next(remaining, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read_line


def test_a_response_is_written_and_added_to_the_messages() -> None:
    with make_scene(FakeCore(["Hello!"])) as scene:
        scene.terminal.answer("Hi")

    assert scene.output.getvalue() == "Hello!\n"
    assert "6 tokens" in scene.notes.getvalue()
    assert scene.session.messages == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
    ]


def test_ctrl_c_stops_the_response_but_not_the_chat() -> None:
    core = FakeCore(["abcdef", "Yes."], hand_stepped=True)
    with make_scene(core) as scene:
        scene.output = Screen(interrupt_after="abc")
        core.allow(3)
        reader = scene.terminal
        reader.chat(scripted_lines("Count"))
        core.allow(100)  # The cancellation also uses some steps; how many varies.
        reader.chat(scripted_lines("Again?"))

    assert scene.output.getvalue() == "abc\n\nYes.\n"
    assert core.cancelled == [1]
    assert [message["content"] for message in scene.session.messages] == [
        "Count",
        "abc",
        "Again?",
        "Yes.",
    ]


def test_ctrl_c_raises_keyboard_interrupt_for_a_single_prompt() -> None:
    core = FakeCore(["abcdef"], hand_stepped=True)
    with make_scene(core) as scene:
        scene.output = Screen(interrupt_after="ab")
        core.allow(2)
        with pytest.raises(KeyboardInterrupt):
            scene.terminal.answer("Count")

    assert scene.output.getvalue() == "ab\n"
    assert scene.notes.getvalue() == "[stopped]\n"
    assert core.cancelled == [1]


def test_ctrl_c_before_the_first_token_removes_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = FakeCore(["abc"], hand_stepped=True)
    submit = core.submit

    def submit_and_interrupt(prompt_ids: Sequence[int], options: SequenceOptions) -> int:
        sequence_id = submit(prompt_ids, options)
        os.kill(os.getpid(), signal.SIGINT)
        return sequence_id

    monkeypatch.setattr(core, "submit", submit_and_interrupt)
    with make_scene(core) as scene:
        scene.terminal.chat(scripted_lines("Count"))

    assert scene.session.messages == []


def test_commands_are_not_sent_to_the_model() -> None:
    with make_scene(FakeCore()) as scene:
        scene.terminal.chat(
            scripted_lines("/help", "/stats", "/nonsense", "", "/exit", "never read")
        )

    assert scene.core.prompts == []
    assert "/reset" in scene.notes.getvalue()
    assert "free_pages=64" in scene.notes.getvalue()
    assert "unknown command" in scene.notes.getvalue()


def test_reset_keeps_only_the_system_message() -> None:
    with make_scene(FakeCore()) as scene:
        scene.session = ChatSession(scene.engine, system="Be brief.")
        scene.terminal.chat(scripted_lines("Hi", "/reset"))

    assert scene.session.messages == [{"role": "system", "content": "Be brief."}]


def test_ctrl_c_while_reading_a_line_shows_a_new_prompt() -> None:
    with make_scene(FakeCore(["Yes."])) as scene:
        scene.terminal.chat(scripted_lines(KeyboardInterrupt, "There?"))

    assert scene.output.getvalue() == "\nYes.\n"


def test_a_failed_request_is_reported_in_one_line_and_the_chat_continues() -> None:
    with make_scene(FakeCore(["Yes."], failures={1: "no luck"})) as scene:
        scene.terminal.chat(scripted_lines("First", "Second"))

    assert scene.output.getvalue() == "Yes.\n"
    assert "aiomlc: no luck" in scene.notes.getvalue()
    assert [message["content"] for message in scene.session.messages] == ["Second", "Yes."]


def test_a_dead_engine_ends_the_chat() -> None:
    with pytest.raises(EngineDeadError), make_scene(FakeCore(dies_at_step=1)) as scene:
        scene.terminal.chat(scripted_lines("First", "Second"))

    assert len(scene.core.prompts) == 1


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        (
            ResponseStatistics(11, 0.05, 10, 2.0, "stop"),
            "11 tokens, first after 50 ms, 5.0 tokens/s",
        ),
        (ResponseStatistics(1, 0.05, 0, 0.0, "length"), "1 tokens, first after 50 ms, cut off at"),
        (ResponseStatistics(first_token_seconds=0.05), "stopped"),
    ],
)
def test_response_statistics_are_formatted(statistics: ResponseStatistics, expected: str) -> None:
    assert str(statistics).startswith(expected)


async def truncated_weights(*_: object, **__: object) -> NoReturn:
    """A loader that fails as for a broken model."""
    raise ModelLoadError("weights.bin is truncated")


def run(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], loader: Loader
) -> tuple[int, str, str]:
    """Run the app with a fake model; return the exit code, stdout and stderr."""
    monkeypatch.setattr(terminal_chat, "AsyncMLCEngine", partial(AsyncMLCEngine, loader=loader))
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_the_prompt_and_the_options_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    core = FakeCore(["Hello!"])
    arguments = ["chat", "-p", "Hi", "--seed", "7", "--max-tokens", "4", "--temperature", "0.5"]

    code, output, _ = run(monkeypatch, arguments, fake_loader(core))

    assert (code, output) == (0, "Hell\n")
    (options,) = core.options
    assert (options.seed, options.max_tokens, options.temperature) == (7, 4, 0.5)


def test_each_line_of_standard_input_is_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\nYou?\n"))
    core = FakeCore(["Hello!", "Me."])

    with make_scene(core) as scene, history.line_reader() as read_line:
        scene.terminal.chat(read_line)

    assert scene.output.getvalue() == "Hello!\nMe.\n"


def test_a_model_load_error_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, output, errors = run(monkeypatch, ["chat", "-p", "Hi"], truncated_weights)

    assert (code, output, errors) == (1, "", "aiomlc: weights.bin is truncated\n")


def test_a_value_out_of_range_is_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, errors = run(monkeypatch, ["chat", "-p", "Hi", "--temperature", "-1"], fake_loader())

    assert code == 2
    assert errors.startswith("aiomlc: ")
    assert "temperature" in errors


def test_debug_raises_the_original_error(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = partial(AsyncMLCEngine, loader=truncated_weights)
    monkeypatch.setattr(terminal_chat, "AsyncMLCEngine", engine)
    result = CliRunner().invoke(app, ["chat", "-p", "Hi", "--debug"])

    assert isinstance(result.exception, ModelLoadError)


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


def test_progress_is_drawn_in_a_terminal() -> None:
    screen = Screen(is_terminal=True)
    with ProgressDisplay(screen, delay=0) as display:
        display.show(LoadProgress("compile", None, "compiling"))
        display.show(LoadProgress("convert", 0.5, "packing the weights"))

    assert "packing the weights" in screen.getvalue()


@pytest.mark.parametrize(("is_terminal", "delay"), [(False, 0.0), (True, 60.0)])
def test_no_progress_is_drawn_without_a_terminal_or_before_the_delay(
    is_terminal: bool, delay: float
) -> None:
    screen = Screen(is_terminal=is_terminal)
    with ProgressDisplay(screen, delay=delay) as display:
        display.show(LoadProgress("load", 0.5, "loading"))

    assert screen.getvalue() == ""


def test_the_history_is_saved_and_loaded(tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    path = tmp_path / "home" / "history"
    readline.clear_history()
    readline.add_history("Who are you?")
    history.save_history(path)
    readline.clear_history()

    history.load_history(path)

    assert readline.get_history_item(1) == "Who are you?"
    readline.clear_history()


def test_an_unwritable_history_file_is_logged_as_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("readline")
    (tmp_path / "file").touch()

    history.save_history(tmp_path / "file" / "history")

    assert "cannot write the history file" in caplog.text
