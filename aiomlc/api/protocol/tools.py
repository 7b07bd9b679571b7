"""The wire models of a request's tools and tool choice."""

from __future__ import annotations

__all__ = ("AllowedTools", "FunctionDefinition", "NamedTool", "Tool", "ToolChoice")

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Discriminator, Field, StrictBool, StrictStr, Tag

from aiomlc.api.protocol.base import FIRST_ERROR, JsonObject, WireModel
from aiomlc.validation.json_schema import check_json_schema


def _valid_schema(schema: dict[str, Any]) -> dict[str, Any]:
    check_json_schema(schema)
    return schema


class FunctionDefinition(WireModel):
    """A function that the model may call."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: StrictStr | None = None
    #: The JSON schema of the arguments.
    parameters: Annotated[JsonObject, AfterValidator(_valid_schema)] | None = None
    strict: StrictBool | None = None  #: Whether calls are constrained to `parameters`.


class Tool(WireModel):
    """A tool that the model may call."""

    type: Literal["function"]
    function: FunctionDefinition

    def for_template(self) -> dict[str, Any]:
        """Return the tool for the chat template: the fields that the caller set."""
        return self.model_dump(exclude_unset=True, exclude={"function": {"strict"}})


class FunctionName(WireModel):
    """The name of a function."""

    name: StrictStr


class NamedTool(WireModel):
    """The tool that the model must call."""

    type: Literal["function"]
    function: FunctionName


class ToolSelection(WireModel):
    """A subset of the tools, and whether the model must call one of them."""

    mode: Literal["auto", "required"]
    tools: Annotated[tuple[NamedTool, ...], FIRST_ERROR, Field(min_length=1)]


class AllowedTools(WireModel):
    """The tools that the model may call; the prompt still contains all tools."""

    type: Literal["allowed_tools"]
    allowed_tools: ToolSelection


def _choice_tag(choice: object) -> object:
    if isinstance(choice, Mapping):
        return choice.get("type")

    return getattr(choice, "type", None) if isinstance(choice, BaseModel) else "mode"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("mode")]
    | Annotated[NamedTool, Tag("function")]
    | Annotated[AllowedTools, Tag("allowed_tools")],
    Discriminator(_choice_tag),
]
