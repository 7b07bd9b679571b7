"""`Conversation`, which can be changed, as programs do with those of the registry."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict, Field

import aiomlc
from aiomlc import MessagePlaceholders as MessagePlaceholders


class Conversation(aiomlc.Conversation):  # type: ignore[misc]
    """A chat template in the schema of `conv_template`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=False, extra="forbid")

    messages: list[tuple[str, str | None]] = Field(default_factory=list)

    def frozen(self) -> aiomlc.Conversation:
        """Return the template as aiomlc's record."""
        return aiomlc.Conversation.model_validate(self.model_dump())


def thawed(conversation: aiomlc.Conversation) -> Conversation:
    """Return a template of aiomlc as one that can be changed."""
    return Conversation.model_validate(conversation.model_dump())
