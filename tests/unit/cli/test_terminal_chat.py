"""A terminal chat with a scripted engine; tests/e2e runs it in a process and in a terminal."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.cli.chat import session as chat_session
from aiomlc.errors import EngineDeadError
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore
from tests.unit.cli.scene import FakeTerminal, make_scene


def test_a_response_is_written_and_added_to_the_conversation() -> None:
    with make_scene() as scene:
        scene.chat.answer("Hi")

    assert scene.output.getvalue() == "Hello!\n"
    assert scene.contents == ["Hi", "Hello!"]


def test_the_figures_are_written_to_a_terminal_only() -> None:
    with make_scene() as scene:
        scene.chat.answer("Hi")
        assert scene.notes.getvalue() == ""

    with make_scene() as scene:
        scene.output = scene.notes = FakeTerminal(is_terminal=True)
        scene.chat.answer("Hi")

    assert "[6 tokens, first after" in scene.notes.getvalue()


def test_a_conversation_sends_the_earlier_turns() -> None:
    with make_scene(FakeCore(["Hello!", "Yes."])) as scene:
        scene.type("Hi", "There?")

    assert scene.contents == ["Hi", "Hello!", "There?", "Yes."]
    assert len(scene.core.prompts[1]) > len(scene.core.prompts[0])


def test_ctrl_c_stops_the_response_but_not_the_chat() -> None:
    core = FakeCore(["abcdef", "Yes."], hand_stepped=True)
    with make_scene(core) as scene:
        scene.output = FakeTerminal(interrupt_after="abc")
        core.allow(3)
        scene.type("Count")
        core.allow(100)  # The cancellation also uses some steps; how many varies.
        scene.type("Again?")

    assert scene.output.getvalue() == "abc\nYes.\n"
    assert core.cancelled == [1]
    assert scene.contents == ["Count", "abc", "Again?", "Yes."]


def test_ctrl_c_raises_keyboard_interrupt_for_a_single_prompt() -> None:
    core = FakeCore(["abcdef"], hand_stepped=True)
    with make_scene(core) as scene:
        scene.output = FakeTerminal(interrupt_after="ab")
        core.allow(2)
        with pytest.raises(KeyboardInterrupt):
            scene.chat.answer("Count")

    assert scene.output.getvalue() == "ab\n"
    assert core.cancelled == [1]


def test_ctrl_c_before_the_first_token_removes_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = FakeCore(["abc"], hand_stepped=True)
    submit = core.submit

    def submit_and_interrupt(prompt: Prompt, options: SequenceOptions) -> int:
        sequence_id = submit(prompt, options)
        os.kill(os.getpid(), signal.SIGINT)
        return sequence_id

    monkeypatch.setattr(core, "submit", submit_and_interrupt)
    with make_scene(core) as scene:
        scene.output = scene.notes = FakeTerminal(is_terminal=True)
        scene.type("Count")

    assert scene.contents == []
    assert "[stopped]" in scene.notes.getvalue()


def test_ctrl_c_while_reading_a_line_says_how_to_leave() -> None:
    with make_scene(FakeCore(["Yes."])) as scene:
        scene.type(KeyboardInterrupt, "There?")

    assert scene.output.getvalue() == "Yes.\n"
    assert "Ctrl-D or /bye leaves" in scene.notes.getvalue()


def test_a_failed_request_is_reported_in_one_line_and_the_chat_continues() -> None:
    with make_scene(FakeCore(["Yes."], failures={1: "no luck"})) as scene:
        scene.type("First", "Second")

    assert scene.output.getvalue() == "Yes.\n"
    assert "aiomlc: no luck\n" in scene.notes.getvalue()
    assert scene.contents == ["Second", "Yes."]


def test_a_dead_engine_ends_the_chat() -> None:
    with pytest.raises(EngineDeadError), make_scene(FakeCore(dies_at_step=1)) as scene:
        scene.type("First", "Second")

    assert len(scene.core.prompts) == 1


def test_a_full_output_ends_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> int:
        raise OSError(28, "No space left on device")

    with make_scene() as scene:
        monkeypatch.setattr(scene.output, "write", fail)
        with pytest.raises(OSError, match="No space left"):
            scene.type("First", "Second")


def test_the_oldest_turns_are_forgotten_when_the_context_is_full() -> None:
    core = FakeCore(["x" * 100])
    with make_scene(core, context_window=1024) as scene:
        scene.output = scene.notes = FakeTerminal(is_terminal=True)
        scene.configure()
        scene.type(*(f"question {number}" for number in range(12)))

    assert len(core.prompts) == 12
    assert all(len(prompt) <= 800 for prompt in core.prompts)
    assert scene.contents[-2:] == ["question 11", "x" * 100]
    assert scene.contents[0] != "question 0"
    assert len(scene.session.conversation.turns) == 12
    assert "context of 1,024 tokens is full: the model forgets the oldest" in (
        scene.notes.getvalue()
    )


def test_a_question_longer_than_the_context_is_reported_and_nothing_is_lost() -> None:
    with make_scene(context_window=256) as scene:
        scene.type("Hi", "x" * 300, "Again")

    assert "aiomlc: prompt has" in scene.notes.getvalue()
    assert len(scene.session.conversation.visible_turns) == 2
    assert "forgets" not in scene.notes.getvalue()


def test_an_answer_that_is_stopped_before_its_figures_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add = chat_session._Response.add

    def add_and_stop(response: chat_session._Response, chunk: ChatCompletionChunk) -> None:
        add(response, chunk)
        if response.figures.finish_reason is not None:
            scene.session.stop()

    monkeypatch.setattr(chat_session._Response, "add", add_and_stop)
    with make_scene() as scene:
        scene.output = scene.notes = FakeTerminal(is_terminal=True)
        scene.type("Hi")

    assert scene.contents == ["Hi", "Hello!"]
    assert "[stopped]" in scene.notes.getvalue()


def test_the_prefill_of_a_long_prompt_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("aiomlc.cli.chat.session._STATUS_DELAY_SECONDS", 0)
    core = FakeCore(["Hi!"], hand_stepped=True)
    with make_scene(core) as scene, ThreadPoolExecutor(1) as threads:
        scene.output = FakeTerminal(is_terminal=True)
        scene.notes = FakeTerminal(is_terminal=True)

        def wait_and_answer() -> None:
            while "reading the prompt, 0 of about " not in scene.notes.getvalue():
                pass

            core.allow(100)

        threads.submit(wait_and_answer)
        scene.chat.answer("Hello")

    assert scene.output.getvalue() == "Hi!\n"
    assert scene.notes.getvalue().rpartition("\r")[2].startswith("\x1b[2m[3 tokens")
