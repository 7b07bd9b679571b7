"""How a conversation template tells of the functions that a chat offers."""

from __future__ import annotations

__all__ = ("FUNCTIONS", "ToolPromptFormat")

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, final

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, field_validator

FUNCTIONS = "{function_string}"


@final
class ToolPromptFormat(BaseModel):
    """What a place of functions becomes where a chat offers some. Immutable.

    Ours: MLC's own templates put a JSON list of functions there, and nothing around it.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    template: StrictStr = FUNCTIONS  #: What is said around them.
    full_tools: StrictBool = False  #: With the `type` of each tool, as Jinja templates see it.
    separator: StrictStr | None = None  #: Between JSON objects; None: they are one JSON list.
    indent: Annotated[int, Field(strict=True, ge=0)] | None = None  #: Of the JSON.
    signature: StrictStr = ""  #: Marks of calls that no prompt has; by them their form is found.

    @field_validator("template")
    @classmethod
    def _has_a_place(cls, template: str) -> str:
        if FUNCTIONS not in template:
            raise ValueError(f"the template has no {FUNCTIONS}")

        return template

    def render(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """The text that tells of the tools, which are in OpenAI's form."""
        functions = [tool if self.full_tools else tool["function"] for tool in tools]
        if self.separator is None:
            text = self._json(functions)
        else:
            text = self.separator.join(map(self._json, functions))

        before, _, after = self.template.partition(FUNCTIONS)
        return before + text + after

    def _json(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=False, indent=self.indent)
