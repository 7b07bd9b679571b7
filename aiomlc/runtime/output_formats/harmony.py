"""Harmony, the format of gpt-oss: messages in channels, some of them to a recipient.

A message is `<|start|>role`, a header and `<|message|>text`, and ends with `<|end|>`, or with one
of the tokens that end a completion: `<|call|>` after a tool call and `<|return|>` after the answer.
The header is `<|channel|>analysis` for reasoning, `<|channel|>final` for the answer, and
`<|channel|>commentary to=functions.NAME <|constrain|>json` for a call. The recipient may also
follow the role. Commentary without a recipient is meant for the user, as the answer is.
"""

from __future__ import annotations

__all__ = ("HARMONY", "ChannelFormat", "MessageHeader", "find_channel_format")

import re
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Channel = Literal["analysis", "commentary", "final"]

_RECIPIENT: Final = re.compile(r"\bto=([^\s<]+)")
_FUNCTIONS: Final = "functions."


class MessageHeader(NamedTuple):
    """The kind of a message, as its header says it."""

    is_reasoning: bool
    function: str | None  #: The name of the function that is called, if the message is a call.


@dataclass(frozen=True, slots=True)
class ChannelFormat:
    """The markers of messages in channels; most are special tokens of the vocabulary."""

    start: str = "<|start|>"
    channel: str = "<|channel|>"
    constrain: str = "<|constrain|>"
    message: str = "<|message|>"
    end: str = "<|end|>"
    #: Tokens that end a completion.
    stops: tuple[str, ...] = ("<|return|>", "<|call|>")

    @property
    def markers(self) -> tuple[str, ...]:
        """Strings that detokenization must keep even if they are special tokens."""
        return self.start, self.channel, self.constrain, self.message, self.end, *self.stops

    def read_header(self, text: str) -> MessageHeader:
        """Return what the text between `start` and `message` says."""
        recipient = _RECIPIENT.search(text)
        _, marker, channel = text.partition(self.channel)
        return MessageHeader(
            is_reasoning=marker != "" and channel.lstrip().startswith("analysis"),
            function=None if recipient is None else recipient[1].removeprefix(_FUNCTIONS),
        )

    def open_message(self, prompt: str) -> str:
        """Return what a prompt has of the message that the completion continues.

        It is the text after the role: mostly empty, else the header and perhaps the first text.
        """
        _, marker, message = prompt.rpartition(self.start)
        if not marker or any(end in message for end in (self.end, *self.stops)):
            return ""

        position = min(
            (i for i in (message.find(self.channel), message.find(" to=")) if i >= 0),
            default=len(message),
        )
        return message[position:]


HARMONY: Final = ChannelFormat()


def find_channel_format(template_source: str) -> ChannelFormat | None:
    """Return Harmony if a chat template has its markers, else None."""
    markers = (HARMONY.start, HARMONY.channel, HARMONY.message)
    return HARMONY if all(marker in template_source for marker in markers) else None
