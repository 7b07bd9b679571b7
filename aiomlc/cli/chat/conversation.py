"""The turns of a chat, and the files that they are saved in."""

from __future__ import annotations

__all__ = (
    "Conversation",
    "Message",
    "Turn",
    "load_conversation",
    "read_image",
    "save_conversation",
    "user_message",
)

import base64
import json
import mimetypes
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from aiomlc.cli.terminal.failures import CommandError

Message = Mapping[str, Any]

_MAX_FILE_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class Turn:
    """A question of the user, and the answer of the model."""

    prompt: str
    answer: str
    images: tuple[str, ...] = ()  #: Before the prompt, as `data:` URLs.

    @property
    def messages(self) -> tuple[Message, Message]:
        """The two messages of the turn."""
        return (
            user_message(self.prompt, self.images),
            {"role": "assistant", "content": self.answer},
        )


def user_message(prompt: str, images: Sequence[str]) -> Message:
    """Return a question as a message, after its images."""
    if not images:
        return {"role": "user", "content": prompt}

    parts = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return {"role": "user", "content": [*parts, {"type": "text", "text": prompt}]}


@final
class Conversation:
    """The system message and the turns of a chat; the model sees the newest turns only.

    Args:
        system: The system message, if any.
        turns: The turns of an earlier conversation.
    """

    def __init__(self, system: str | None = None, turns: Sequence[Turn] = ()) -> None:
        self.system = system
        self.turns: list[Turn] = list(turns)
        self._num_forgotten = 0

    @property
    def visible_turns(self) -> list[Turn]:
        """The turns that were not forgotten."""
        return self.turns[self._num_forgotten :]

    @property
    def messages(self) -> list[Message]:
        """The messages that the model sees."""
        return self.messages_without(0)

    def messages_without(self, count: int) -> list[Message]:
        """Return the messages that the model sees after `forget(count)`."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        turns = self.visible_turns[count:]
        return [*system, *(message for turn in turns for message in turn.messages)]

    def clear(self) -> None:
        """Remove all turns; the system message stays."""
        self.turns = []
        self._num_forgotten = 0

    def forget(self, count: int) -> None:
        """Hide the oldest visible turns from the model; they are still saved."""
        self._num_forgotten += count

    def remove_last(self) -> Turn:
        """Remove and return the last turn, which must exist."""
        turn = self.turns.pop()
        self._num_forgotten = min(self._num_forgotten, len(self.turns))
        return turn


def save_conversation(conversation: Conversation, path: Path) -> None:
    """Write a conversation to a JSON file, whose directory must exist.

    Raises:
        CommandError: If the file cannot be written, or exists and is not a saved conversation.
    """
    if path.exists():
        _check_replaceable(path)

    whole = Conversation(conversation.system, conversation.turns)
    text = json.dumps({"messages": whole.messages}, ensure_ascii=False, indent=2)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(f"{text}\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise CommandError(f"cannot write {path}: {error.strerror}") from None


def load_conversation(path: Path) -> Conversation:
    """Read a conversation from a JSON file that `save_conversation` wrote.

    Raises:
        CommandError: If the file cannot be read or has other contents.
    """
    messages = _read_messages(path)
    first = messages[0] if messages else {}
    system = first["content"] if first.get("role") == "system" else None
    num_system = 0 if system is None else 1
    turns = messages[num_system:]
    for index, message in enumerate(turns):
        role = ("user", "assistant")[index % 2]
        if message["role"] != role:
            raise CommandError(
                f"{path}: messages[{num_system + index}].role: must be {role!r}, "
                f"got {message['role']!r}"
            )

    if len(turns) % 2:
        raise CommandError(f"{path}: the last message must be an answer of the assistant")

    pairs = zip(turns[::2], turns[1::2], strict=True)
    return Conversation(system, [_turn(question, answer) for question, answer in pairs])


def _turn(question: Message, answer: Message) -> Turn:
    content = question["content"]
    if isinstance(content, str):
        return Turn(content, answer["content"])

    *images, text = content
    return Turn(text["text"], answer["content"], tuple(part["image_url"]["url"] for part in images))


def read_image(path: Path) -> str:
    """Return a file as a `data:` URL; the engine decodes it with the question.

    Raises:
        CommandError: If the file cannot be read, or is too large.
    """
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(_read_file(path)).decode()}"


def _check_replaceable(path: Path) -> None:
    try:
        _read_messages(path)
    except CommandError:
        raise CommandError(
            f"{path} exists and is not a saved conversation; it is left as it is"
        ) from None


def _read_messages(path: Path) -> list[dict[str, Any]]:
    contents = _read_file(path)
    try:
        data = json.loads(contents)
    except (ValueError, RecursionError):
        raise CommandError(f"{path} is not a saved conversation: not valid JSON") from None

    messages = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        raise CommandError(
            f"{path} is not a saved conversation: expected "
            '{"messages": [{"role": ..., "content": ...}, ...]}'
        )

    return messages


def _read_file(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise CommandError(f"cannot read {path}: not a regular file")

        if (size := path.stat().st_size) > _MAX_FILE_BYTES:
            raise CommandError(
                f"cannot read {path}: must have at most {_MAX_FILE_BYTES} bytes, got {size}"
            )

        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None


def _is_message(value: Any) -> bool:  # noqa: ANN401 - JSON.
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and (isinstance(value.get("content"), str) or _has_images(value))
    )


def _has_images(message: dict[str, Any]) -> bool:
    """Whether a message is one of a user with images."""
    match message:
        case {"role": "user", "content": [*images, {"type": "text", "text": str()}]}:
            return all(map(_is_image, images))
        case _:
            return False


def _is_image(part: object) -> bool:
    match part:
        case {"type": "image_url", "image_url": {"url": str()}}:
            return True
        case _:
            return False
