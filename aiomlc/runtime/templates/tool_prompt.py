"""The description of the offered functions within a conversation template."""

from __future__ import annotations

__all__ = ("FUNCTIONS", "FunctionForm", "ToolPromptFormat")

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, final

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, field_validator

from aiomlc.runtime.templates.placeholders import MessagePlaceholders

FUNCTIONS = MessagePlaceholders.FUNCTION.value


@final
class ToolPromptFormat(BaseModel):
    """The text that replaces `{function_string}` if a request offers functions. Immutable.

    An extension of MLC LLM's schema, in which the text is always a JSON list of the functions.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    template: StrictStr = FUNCTIONS  #: The text around the functions.
    #: Whether to write the complete OpenAI tool, including `type`, instead of its function only.
    full_tools: StrictBool = False
    separator: StrictStr | None = None  #: Between JSON objects; None for one JSON list.
    indent: Annotated[int, Field(strict=True, ge=0)] | None = None  #: Indentation of the JSON.
    #: Additional text for the lookup of the tool-call format. It is not part of any prompt.
    signature: StrictStr = ""

    @field_validator("template")
    @classmethod
    def _check_placeholder(cls, template: str) -> str:
        if FUNCTIONS not in template:
            raise ValueError(f"the template must contain {FUNCTIONS}")

        return template

    def render(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Return the description of OpenAI tools."""
        functions = [tool if self.full_tools else tool["function"] for tool in tools]
        if self.separator is None:
            text = self._to_json(functions)
        else:
            text = self.separator.join(map(self._to_json, functions))

        before, _, after = self.template.partition(FUNCTIONS)
        return before + text + after

    def _to_json(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=False, indent=self.indent)


FunctionForm = ToolPromptFormat  # The name in earlier releases, which programs may import.
