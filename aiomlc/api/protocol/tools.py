"""The tools that a request offers."""

from __future__ import annotations

__all__ = ("AllowedTools", "FunctionDefinition", "NamedTool", "Tool", "ToolChoice")

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StrictBool, StrictStr, Tag

from aiomlc.api.protocol.base import JsonObject, WireModel


class FunctionDefinition(WireModel):
    """A function the model may call; `parameters` is a JSON schema of its arguments."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: StrictStr | None = None
    parameters: JsonObject | None = None
    strict: StrictBool | None = None  #: Whether a call must keep to `parameters`.


class Tool(WireModel):
    """One tool, as the caller and the chat template spell it."""

    type: Literal["function"]
    function: FunctionDefinition

    def for_template(self) -> dict[str, Any]:
        """What the chat template sees: the fields the caller gave."""
        return self.model_dump(exclude_unset=True, exclude={"function": {"strict"}})


class FunctionName(WireModel):
    """A function, by its name."""

    name: StrictStr


class NamedTool(WireModel):
    """The tool that must be called."""

    type: Literal["function"]
    function: FunctionName


class ToolSelection(WireModel):
    """Some of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: Annotated[tuple[NamedTool, ...], Field(min_length=1)]


class AllowedTools(WireModel):
    """The tools that may be called; the model is told of the others too."""

    type: Literal["allowed_tools"]
    allowed_tools: ToolSelection


def _kind(choice: object) -> object:
    if isinstance(choice, Mapping):
        return choice.get("type")

    return getattr(choice, "type", "mode")


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("mode")]
    | Annotated[NamedTool, Tag("function")]
    | Annotated[AllowedTools, Tag("allowed_tools")],
    Discriminator(_kind),
]
