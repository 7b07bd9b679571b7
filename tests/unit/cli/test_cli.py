"""The command line on a scripted engine; a process and a terminal of its own are e2e's."""

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
from aiomlc.cli import history, talk
from aiomlc.cli.app import app
from aiomlc.cli.chat_session import AnswerStatistics, Conversation
from aiomlc.cli.progress import ProgressDisplay
from aiomlc.cli.talk import Talk
from aiomlc.errors import EngineDeadError
from aiomlc.runtime.loading.loaded_model import LoadProgress
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore, fake_loader


@final
class Screen(io.StringIO):
    """A terminal that presses Ctrl-C when a text has appeared on it."""

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
class Setting:
    """A talk on a fake core, and what it wrote."""

    def __init__(
        self, core: FakeCore, engine: AsyncMLCEngine, make_talk: Callable[..., Talk]
    ) -> None:
        self.core = core
        self.engine = engine
        self.output = Screen()
        self.notes = Screen()
        self.conversation = Conversation(engine, options={"max_tokens": 50})
        self._make_talk = make_talk

    @property
    def talk(self) -> Talk:
        return self._make_talk(
            self.conversation, self.output, self.notes, statistics=self.engine.statistics
        )


@contextmanager
def setting(core: FakeCore) -> Iterator[Setting]:
    engine = AsyncMLCEngine(loader=fake_loader(core))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(engine):
        yield Setting(core, engine, lambda *args, **kwargs: Talk(portal, *args, **kwargs))


def lines(*script: str | type[BaseException]) -> Callable[[], str]:
    """A `read_line` that follows a script and then is at the end of input."""
    following = iter(script)

    def read_line() -> str:
        line = next(following, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read_line


def test_an_answer_is_written_and_kept_in_the_conversation() -> None:
    with setting(FakeCore(["Hello!"])) as scene:
        scene.talk.answer("Hi")

    assert scene.output.getvalue() == "Hello!\n"
    assert "6 tokens" in scene.notes.getvalue()
    assert scene.conversation.messages == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
    ]


def test_ctrl_c_stops_the_answer_and_not_the_conversation() -> None:
    core = FakeCore(["abcdef", "Yes."], hand_stepped=True)
    with setting(core) as scene:
        scene.output = Screen(interrupt_after="abc")
        core.allow(3)
        reader = scene.talk
        reader.converse(lines("Count"))
        core.allow(100)  # Taking in the cancellation uses some up, and how many is not certain.
        reader.converse(lines("Again?"))

    assert scene.output.getvalue() == "abc\n\nYes.\n"
    assert core.cancelled == [1]
    assert [message["content"] for message in scene.conversation.messages] == [
        "Count",
        "abc",
        "Again?",
        "Yes.",
    ]


def test_ctrl_c_leaves_when_there_was_only_one_question() -> None:
    core = FakeCore(["abcdef"], hand_stepped=True)
    with setting(core) as scene:
        scene.output = Screen(interrupt_after="ab")
        core.allow(2)
        with pytest.raises(KeyboardInterrupt):
            scene.talk.answer("Count")

    assert scene.output.getvalue() == "ab\n"
    assert scene.notes.getvalue() == "[stopped]\n"
    assert core.cancelled == [1]


def test_ctrl_c_before_the_first_word_takes_the_question_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = FakeCore(["abc"], hand_stepped=True)
    submit = core.submit

    def submit_and_interrupt(prompt_ids: Sequence[int], options: SequenceOptions) -> int:
        sequence_id = submit(prompt_ids, options)
        os.kill(os.getpid(), signal.SIGINT)
        return sequence_id

    monkeypatch.setattr(core, "submit", submit_and_interrupt)
    with setting(core) as scene:
        scene.talk.converse(lines("Count"))

    assert scene.conversation.messages == []


def test_commands_are_not_sent_to_the_model() -> None:
    with setting(FakeCore()) as scene:
        scene.talk.converse(lines("/help", "/stats", "/nonsense", "", "/exit", "never read"))

    assert scene.core.prompts == []
    assert "/reset" in scene.notes.getvalue()
    assert "free_pages=64" in scene.notes.getvalue()
    assert "no such command" in scene.notes.getvalue()


def test_reset_forgets_everything_but_the_system_message() -> None:
    with setting(FakeCore()) as scene:
        scene.conversation = Conversation(scene.engine, system="Be brief.")
        scene.talk.converse(lines("Hi", "/reset"))

    assert scene.conversation.messages == [{"role": "system", "content": "Be brief."}]


def test_ctrl_c_at_the_prompt_gives_a_new_prompt() -> None:
    with setting(FakeCore(["Yes."])) as scene:
        scene.talk.converse(lines(KeyboardInterrupt, "There?"))

    assert scene.output.getvalue() == "\nYes.\n"


def test_a_request_that_fails_is_one_line_and_the_next_one_is_answered() -> None:
    with setting(FakeCore(["Yes."], failures={1: "no luck"})) as scene:
        scene.talk.converse(lines("First", "Second"))

    assert scene.output.getvalue() == "Yes.\n"
    assert "aiomlc: no luck" in scene.notes.getvalue()
    assert [message["content"] for message in scene.conversation.messages] == ["Second", "Yes."]


def test_an_engine_that_dies_ends_the_conversation() -> None:
    with pytest.raises(EngineDeadError), setting(FakeCore(dies_at_step=1)) as scene:
        scene.talk.converse(lines("First", "Second"))

    assert len(scene.core.prompts) == 1


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        (AnswerStatistics(11, 0.05, 10, 2.0, "stop"), "11 tokens, first after 50 ms, 5.0 tokens/s"),
        (AnswerStatistics(1, 0.05, 0, 0.0, "length"), "1 tokens, first after 50 ms, cut off at"),
        (AnswerStatistics(first_token_seconds=0.05), "stopped"),
    ],
)
def test_the_figures_of_an_answer(statistics: AnswerStatistics, expected: str) -> None:
    assert str(statistics).startswith(expected)


async def truncated_weights(*_: object, **__: object) -> NoReturn:
    """A loader that finds a broken model."""
    raise ModelLoadError("weights.bin is truncated")


def run(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], loader: Loader
) -> tuple[int, str, str]:
    """Run the app with a fake model; returns exit code, stdout and stderr."""
    monkeypatch.setattr(talk, "AsyncMLCEngine", partial(AsyncMLCEngine, loader=loader))
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_the_prompt_and_the_options_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    core = FakeCore(["Hello!"])
    arguments = ["chat", "Hi", "--seed", "7", "--max-tokens", "4", "--temperature", "0.5"]

    code, output, _ = run(monkeypatch, arguments, fake_loader(core))

    assert (code, output) == (0, "Hell\n")
    (options,) = core.options
    assert (options.seed, options.max_tokens, options.temperature) == (7, 4, 0.5)


def test_lines_of_standard_input_are_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\nYou?\n"))
    core = FakeCore(["Hello!", "Me."])

    with setting(core) as scene, history.line_reader() as read_line:
        scene.talk.converse(read_line)

    assert scene.output.getvalue() == "Hello!\nMe.\n"


def test_a_model_that_does_not_load_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, output, errors = run(monkeypatch, ["chat", "Hi"], truncated_weights)

    assert (code, output, errors) == (1, "", "aiomlc: weights.bin is truncated\n")


def test_a_value_out_of_range_is_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, errors = run(monkeypatch, ["chat", "Hi", "--temperature", "-1"], fake_loader())

    assert code == 2
    assert errors.startswith("aiomlc: ")
    assert "temperature" in errors


def test_debug_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = partial(AsyncMLCEngine, loader=truncated_weights)
    monkeypatch.setattr(talk, "AsyncMLCEngine", engine)
    result = CliRunner().invoke(app, ["chat", "Hi", "--debug"])

    assert isinstance(result.exception, ModelLoadError)


def test_plan_prints_the_table_and_what_was_given() -> None:
    result = CliRunner().invoke(app, ["plan", "--max-num-sequence", "3", "--mode", "server"])

    assert result.exit_code == 0
    assert result.stdout.startswith("pebble (q4f16_1), mode server\n")
    assert "max_num_sequence                     3      given" in result.stdout


def test_plan_shows_what_a_cache_of_eight_bits_spares() -> None:
    def tokens(*more: str) -> int:
        result = CliRunner().invoke(app, ["plan", *more])
        line = next(line for line in result.stdout.splitlines() if "KV cache" in line)
        return int(line.split(" tokens of ")[1].split()[0].replace(",", ""))

    assert tokens("--kv-cache-dtype", "float16") == tokens()
    assert 1.7 < tokens() / tokens("--kv-cache-dtype", "int8") < 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--max-total-sequence-length", f"{2**40}"], 1, "MORE THAN THE BUDGET"),
        (["--mode", "tiny"], 2, "mode is 'tiny'"),
        (["--kv-cache-dtype", "int4"], 2, "kv_cache_dtype is 'int4'"),
    ],
)
def test_a_plan_that_cannot_be_is_an_error(arguments: list[str], code: int, words: str) -> None:
    result = CliRunner().invoke(app, ["plan", *arguments])

    assert result.exit_code == code
    assert words in result.stderr


def test_version_names_what_a_bug_report_needs() -> None:
    result = CliRunner().invoke(app, ["version"])

    assert result.exit_code == 0
    assert result.stdout.startswith("aiomlc ")
    assert "apache-tvm " in result.stdout


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_an_option_as_well(option: str) -> None:
    result = CliRunner().invoke(app, [option])

    assert (result.exit_code, result.stdout) == (0, f"aiomlc {aiomlc.__version__}\n")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_commands(option: str) -> None:
    result = CliRunner().invoke(app, [option])

    assert result.exit_code == 0
    assert "chat" in result.stdout


def test_progress_is_drawn_in_a_terminal_and_wiped_away() -> None:
    screen = Screen(is_terminal=True)
    with ProgressDisplay(screen, patience=0) as display:
        display.show(LoadProgress("compile", None, "compiling"))
        display.show(LoadProgress("convert", 0.5, "packing the weights"))

    assert "packing the weights" in screen.getvalue()


@pytest.mark.parametrize(("is_terminal", "patience"), [(False, 0.0), (True, 60.0)])
def test_nothing_is_drawn_outside_a_terminal_or_for_a_short_load(
    is_terminal: bool, patience: float
) -> None:
    screen = Screen(is_terminal=is_terminal)
    with ProgressDisplay(screen, patience=patience) as display:
        display.show(LoadProgress("load", 0.5, "loading"))

    assert screen.getvalue() == ""


def test_the_history_outlives_the_process(tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    path = tmp_path / "home" / "history"
    readline.clear_history()
    readline.add_history("Who are you?")
    history.save_history(path)
    readline.clear_history()

    history.load_history(path)

    assert readline.get_history_item(1) == "Who are you?"
    readline.clear_history()


def test_a_history_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("readline")
    (tmp_path / "file").touch()

    history.save_history(tmp_path / "file" / "history")

    assert "is not written" in caplog.text
