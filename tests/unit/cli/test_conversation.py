"""Conversations and the files that they are saved in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aiomlc.cli.chat.conversation import Conversation, Turn, load_conversation, save_conversation
from aiomlc.cli.terminal.failures import CommandError

TURNS = [
    Turn("Hi", "Hello!"),
    Turn("What?", "A cat.", ("data:image/png;base64,AAAA", "data:image/gif;base64,BBBB")),
    Turn("Wörter?", "Ja,\n\tviele. 日本"),
]


def test_a_saved_conversation_is_loaded_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    save_conversation(Conversation("Be brief.", TURNS), path)

    loaded = load_conversation(path)

    assert (loaded.system, loaded.turns) == ("Be brief.", TURNS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["chat.json"]


def test_forgotten_turns_are_saved_but_not_sent(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    conversation = Conversation(turns=TURNS)
    conversation.forget(2)
    save_conversation(conversation, path)

    assert [message["content"] for message in conversation.messages] == [
        "Wörter?",
        "Ja,\n\tviele. 日本",
    ]
    assert load_conversation(path).turns == TURNS


def test_removing_the_last_turn_keeps_the_number_of_forgotten_turns_valid() -> None:
    conversation = Conversation(turns=TURNS)
    conversation.forget(3)
    conversation.remove_last()
    conversation.turns.append(Turn("New", "Answer"))

    assert conversation.visible_turns == [Turn("New", "Answer")]


def test_a_saved_conversation_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    save_conversation(Conversation(), path)
    save_conversation(Conversation(turns=TURNS), path)

    assert load_conversation(path).turns == TURNS


def test_another_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("precious")

    with pytest.raises(CommandError, match="exists and is not a saved conversation"):
        save_conversation(Conversation(turns=TURNS), path)

    assert path.read_text() == "precious"


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot write .*No such file or directory"):
        save_conversation(Conversation(), tmp_path / "missing" / "chat.json")


def message(role: str, content: object = "text") -> dict[str, object]:
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ("", "not valid JSON"),
        ("\x00\xff", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "expected"),
        ("{}", "expected"),
        (json.dumps({"messages": [message("user", 7)]}), "expected"),
        (json.dumps({"messages": ["Hi"]}), "expected"),
        (json.dumps({"messages": [message("user")]}), "the last message must be an answer"),
        (json.dumps({"messages": [message("assistant")]}), "must be 'user', got 'assistant'"),
        (
            json.dumps({"messages": [message("system"), message("user"), message("user")]}),
            r"messages\[2\]\.role: must be 'assistant', got 'user'",
        ),
    ],
)
def test_other_contents_are_rejected(tmp_path: Path, contents: str, reason: str) -> None:
    path = tmp_path / "chat.json"
    path.write_text(contents, encoding="latin-1")

    with pytest.raises(CommandError, match=reason):
        load_conversation(path)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    for path in (tmp_path, tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(CommandError, match="not a regular file"):
            load_conversation(path)


def test_a_huge_file_is_rejected_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(CommandError, match="must have at most"):
        load_conversation(path)
