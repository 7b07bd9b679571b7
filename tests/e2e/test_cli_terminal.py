"""An interactive chat at a pseudo-terminal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.terminal import chat_at_terminal

GREEDY = ("--temperature", "0")


def test_the_banner_names_the_model_and_the_help() -> None:
    with chat_at_terminal() as chat:
        assert "pebble (q4f16_1), context of 2,048 tokens. /help lists the commands" in chat.banner
        assert "/save FILE" in chat.ask("/help")
        assert "did you mean /stats" in chat.ask("/sats")
        chat.type("/bye\n")
        assert chat.process.wait(timeout=60) == 0


def test_ctrl_c_at_the_prompt_continues_and_ctrl_d_exits() -> None:
    with chat_at_terminal(*GREEDY) as chat:
        chat.process.send_signal(signal.SIGINT)
        # If the signal arrives before readline waits, it is handled with the next line.
        chat.type("\n")
        chat.type("What is 12 plus 30?\n")
        assert "42" in chat.read_until("tokens/s")

        chat.read_until("> ")
        assert chat.leave() == 0


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on() -> None:
    with chat_at_terminal(*GREEDY) as chat:
        chat.ask("/set ignore_eos true")
        chat.type("Who are you?\n")
        chat.read_until("I am Pebble")
        # The process waits for this terminal to be read long before it reaches its limit.
        chat.process.send_signal(signal.SIGINT)
        chat.read_until("[stopped]")
        chat.read_until("\n> ")
        chat.ask("/set ignore_eos false")
        assert "42" in chat.ask("What is 12 plus 30?")
        assert chat.leave() == 0


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_pasted_lines_are_one_question(term: str) -> None:
    with chat_at_terminal("mock://echo", environment={"TERM": term}) as chat:
        if term == "dumb":
            chat.type("def f(x):\r    return x\r")
        else:
            chat.paste("def f(x):\n    return x")
            chat.type("\n")
        answer = chat.read_until("<|im_start|>assistant")

        assert "<|im_start|>user\ndef f(x):\n    return x<|im_end|>" in answer


@pytest.mark.parametrize("columns", [30, 60])
def test_answers_are_wrapped_between_words(columns: int) -> None:
    with chat_at_terminal(*GREEDY, columns=columns) as chat:
        answer = chat.ask("Who are you?").rpartition("\r")[2]  # After the progress of the prefill.
        assert "\x1b[2m[" in answer  # The figures are dim.
        lines = answer.partition("\x1b[2m[")[0].splitlines()

    assert " ".join(lines).startswith("I am Pebble, a tiny language model with about 5 million")
    assert all(len(line) <= columns for line in lines)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_styles_are_written_if_the_user_wants_none(
    environment: dict[str, str],
) -> None:
    with chat_at_terminal(environment=environment) as chat:
        assert "\x1b" not in chat.banner + chat.ask("Who are you?") + chat.ask("/stats")


def test_a_conversation_is_saved_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    with chat_at_terminal(*GREEDY) as chat:
        chat.ask("My name is Ada.")
        assert f"saved 1 question to {path}" in chat.ask(f"/save {path}").replace("\n", " ")

    with chat_at_terminal(*GREEDY) as chat:
        assert "loaded 1 question from" in chat.ask(f"/load {path}")
        assert "Ada" in chat.ask("What is my name?")
        assert "aiomlc: there is no answer" in chat.ask("/clear") + chat.ask("/regen")


@pytest.mark.thorough
def test_a_long_conversation_forgets_its_oldest_turns() -> None:
    with chat_at_terminal(*GREEDY) as chat:
        notes = [chat.ask(f"{'word ' * 150}{number}") for number in range(15)]

        assert "context of 2,048 tokens is full" in "".join(notes)
        assert "aiomlc:" not in "".join(notes)
        assert "of them forgotten" in chat.ask("/stats")


def test_a_killed_chat_keeps_its_history() -> None:
    with chat_at_terminal(*GREEDY) as chat:
        chat.ask("What is 12 plus 30?")

    with chat_at_terminal(*GREEDY) as chat:
        chat.type("\x1b[A\n")
        assert "12 + 30 = 42." in chat.read_until("tokens/s")


def test_keys_complete_commands_and_edit_questions() -> None:
    with chat_at_terminal("mock://echo") as terminal:
        terminal.type("one\x1b\rtwo\n")  # Alt-Enter.
        assert "user\none\ntwo<|im_end|>" in terminal.read_until("assistant")
        terminal.read_until("\n> ")
        terminal.type("/sta\t\n")
        assert "KV cache" in terminal.read_until("\n> ")
        terminal.type("a\tb\n")
        terminal.read_until("\n")
        answer = terminal.read_until("\n> ")

        assert terminal.leave() == 0

    assert "a\tb" in answer or "a       b" in answer


def test_questions_may_have_characters_that_the_locale_lacks() -> None:
    with chat_at_terminal("mock://echo", environment={"LC_ALL": "C"}) as chat:
        for _ in range(2):
            assert "<|im_start|>user\nCaf\u00e9?<|im_end|>" in chat.ask('"""\nCaf\u00e9?"""')
        assert chat.leave() == 0
