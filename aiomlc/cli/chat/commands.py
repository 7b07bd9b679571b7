"""The commands of an interactive chat, such as `/help`."""

from __future__ import annotations

__all__ = ("ChatCommands", "is_command", "is_farewell")

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from aiomlc.cli.chat.conversation import load_conversation, read_image, save_conversation
from aiomlc.cli.chat.sampling_settings import (
    SET,
    complete_parameter,
    describe_parameters,
    effective_value,
    parse_parameters,
)
from aiomlc.cli.chat.session import ChatSession
from aiomlc.cli.terminal.completion import complete_path
from aiomlc.cli.terminal.failures import CommandError
from aiomlc.cli.terminal.figures import count, describe_engine
from aiomlc.cli.terminal.screen import Screen
from aiomlc.sampling_params import SamplingParams
from aiomlc.validation.suggestions import suggest

if TYPE_CHECKING:
    from aiomlc.runtime.engine.core_protocol import CoreStatistics

# A path such as /etc/hosts at the start of a question is not a command.
_COMMAND = re.compile(r"/[A-Za-z?]*([ \t].*)?")
_NAME_AND_VALUE = re.compile(r"\s*\w+[\s=]")  # The value may still be missing.
_KEYS = """\
Ctrl-C stops an answer, Ctrl-D leaves. Alt-Enter begins a new line, Tab completes a command.
Pasted lines are one question, and so are lines between two \"\"\".
A line that begins with a space is a question, even if / follows; exit and quit leave, too."""


@dataclass(frozen=True, slots=True)
class _Command:
    names: tuple[str, ...]
    run: Callable[[str], None]
    description: str
    argument: str = ""  #: As in the help; optional if it is in brackets.

    @property
    def usage(self) -> str:
        return f"{', '.join(self.names)} {self.argument}".rstrip()

    def check_argument(self, name: str, argument: str) -> None:
        """Require an argument, or none.

        Raises:
            CommandError: If it is missing, or not expected.
        """
        if argument and not self.argument:
            raise CommandError(f"{name} takes no argument, got {argument!r}")

        if not argument and self.argument and not self.argument.startswith("["):
            raise CommandError(f"the argument is missing; type {name} {self.argument}")


def is_command(line: str) -> bool:
    """Return whether a line is a command and not a question."""
    return _COMMAND.fullmatch(line) is not None


def is_farewell(line: str) -> bool:
    """Return whether a line is a word that leaves Python's and other prompts."""
    return line in ("exit", "quit", "exit()", "quit()")


@final
class ChatCommands:
    """The commands of a chat.

    Args:
        session: The chat.
        screen: Shows the results.
        statistics: Returns the figures of the engine.
        describe_model: Returns what `/show` says of the model.
        answer_again: Answers the last question again.
        defaults: The sampling parameters of the model's files.
    """

    def __init__(
        self,
        session: ChatSession,
        screen: Screen,
        *,
        statistics: Callable[[], CoreStatistics],
        describe_model: Callable[[], str],
        answer_again: Callable[[], None],
        defaults: SamplingParams,
    ) -> None:
        self._session = session
        self._defaults = defaults
        self._screen = screen
        self._statistics = statistics
        self._describe_model = describe_model
        commands = [
            _Command(("/help", "/?"), self._help, "show this list"),
            _Command(("/set",), self._set, "change a sampling parameter, or list", "[NAME VALUE]"),
            _Command(("/system",), self._system, "change the system message, or show it", "[TEXT]"),
            _Command(("/image",), self._image, "send an image with the next question", "FILE"),
            _Command(("/show",), self._show, "show the model and the system message"),
            _Command(("/stats",), self._stats, "show the figures of the engine"),
            _Command(("/clear", "/reset"), self._clear, "begin a new conversation"),
            _Command(
                ("/regen", "/retry"), lambda _: answer_again(), "answer the last question again"
            ),
            _Command(("/save",), self._save, "save the conversation", "FILE"),
            _Command(("/load",), self._load, "continue a saved conversation", "FILE"),
            _Command(("/bye", "/quit", "/exit"), self._leave, "leave the chat"),
        ]
        self._commands = commands
        self._by_name = {name: command for command in commands for name in command.names}

    def run(self, line: str) -> None:
        """Run the command of a line.

        Raises:
            CommandError: If the command is unknown or failed.
            EOFError: If the command is `/bye`.
        """
        name, _, argument = line.partition(" ")
        command = self._by_name.get(name)
        if command is None:
            raise CommandError(self._describe_unknown(name))

        argument = argument.strip()
        command.check_argument(name, argument)
        command.run(argument)

    def complete(self, line: str, word: str) -> list[str]:
        """Return what the last word of a line with a command may be, with a space before its value.

        Args:
            line: The line so far.
            word: Its last word, which may be empty.
        """
        name, space, argument = line.partition(" ")
        if not space:
            return [
                f"{known} " if command.argument else known
                for known, command in self._by_name.items()
                if known.startswith(word)
            ]

        if name == "/set" and not _NAME_AND_VALUE.match(argument.rpartition(";")[2]):
            return [f"{parameter} " for parameter in complete_parameter(word)]

        return complete_path(word) if name in ("/image", "/save", "/load") else []

    def _describe_unknown(self, name: str) -> str:
        hint = suggest(name, self._by_name, cutoff=0.5) or "; /help lists the commands"
        return f"unknown command {name}{hint}"

    def _help(self, _: str) -> None:
        lines = [f"{command.usage:<22} {command.description}" for command in self._commands]
        self._screen.show("\n".join([*lines, _KEYS]))

    def _set(self, argument: str) -> None:
        options = self._session.options
        if not argument:
            self._screen.show(describe_parameters(options, self._defaults))
            return

        changes = parse_parameters(argument)
        kept = {name: value for name, value in options.items() if name not in changes}
        self._session.options = {**kept, **changes}
        for name, value in changes.items():
            effective, source = effective_value(name, value, self._defaults)
            of_whom = "" if source == SET else f" ({source})"
            self._screen.show(f"{name} = {effective}{of_whom}")

    def _system(self, argument: str) -> None:
        conversation = self._session.conversation
        if argument:  # Two quotes are no text.
            conversation.system = argument.strip("\"'") and argument
        self._screen.show(f"system: {conversation.system or 'none'}")

    def _image(self, argument: str) -> None:
        path, images = _path(argument), self._session.images
        images.append(read_image(path))
        self._screen.show(
            f"{path.name} goes with the next question ({count(len(images), 'image')})"
        )

    def _show(self, _: str) -> None:
        self._screen.show(self._describe_model())
        self._system("")

    def _stats(self, _: str) -> None:
        conversation, window = self._session.conversation, self._session.context_window
        turns, visible = len(conversation.turns), len(conversation.visible_turns)
        forgotten = f", {turns - visible:,} of them forgotten" if turns > visible else ""
        lines = {
            "conversation": f"{count(turns, 'question')}{forgotten}",
            "context": f"{self._session.used_tokens():,} of {count(window, 'token')}",
            **describe_engine(self._statistics()),
        }
        self._screen.show("\n".join(f"{name:<13} {value}" for name, value in lines.items()))

    def _clear(self, _: str) -> None:
        self._session.conversation.clear()
        self._session.images.clear()
        self._screen.show("this is a new conversation")

    def _save(self, argument: str) -> None:
        path, conversation = _path(argument), self._session.conversation
        save_conversation(conversation, path)
        self._screen.show(f"saved {count(len(conversation.turns), 'question')} to {path}")

    def _load(self, argument: str) -> None:
        path = _path(argument)
        self._session.conversation = load_conversation(path)
        turns = count(len(self._session.conversation.turns), "question")
        self._screen.show(f"loaded {turns} from {path}")

    def _leave(self, _: str) -> None:
        raise EOFError


def _path(text: str) -> Path:
    is_quoted = len(text) > 2 and text[0] == text[-1] and text[0] in "\"'"
    try:
        return Path(text[1:-1] if is_quoted else text).expanduser()
    except RuntimeError as error:  # ~name of an unknown user.
        raise CommandError(f"cannot find {text}: {error}") from None
