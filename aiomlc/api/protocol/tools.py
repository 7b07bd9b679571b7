"""The tools that a request offers."""

from __future__ import annotations

__all__ = ("FunctionDefinition", "Tool", "ToolChoice")

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from aiomlc.api.protocol.wire import WireModel

ToolChoice = Literal["none", "auto"]


def _not_strict(value: object) -> object:
    if value is True:
        raise ValueError("is not supported yet")

    return value


class FunctionDefinition(WireModel):
    """A function the model may call; `parameters` is a JSON schema of its arguments."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: StrictStr | None = None
    parameters: dict[str, Any] | None = None
    strict: Annotated[StrictBool | None, BeforeValidator(_not_strict)] = None


class Tool(WireModel):
    """One tool, as the caller and the chat template spell it."""

    type: Literal["function"]
    function: FunctionDefinition

    def for_template(self) -> dict[str, Any]:
        """What the chat template sees: the fields the caller gave."""
        return self.model_dump(exclude_unset=True, exclude={"function": {"strict"}})
