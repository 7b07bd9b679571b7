"""The base class of the grammar rules of functions in the syntaxes other than JSON."""

from __future__ import annotations

__all__ = ("ToolRules", "properties_of")

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from aiomlc.errors import BadRequestError
from aiomlc.runtime.grammar.grammar import lark_json
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from aiomlc.runtime.output_formats.tool_syntax.typed_value import with_definitions


class ToolRules:
    """The Lark rules of a call to one function.

    Args:
        prefix: The prefix of all rule names.
        tool: The function.
        literal: Converts fixed text to a Lark expression.
    """

    syntax: ClassVar[str]  #: Its name in errors.

    def __init__(self, prefix: str, tool: ToolSchema, literal: Callable[[str], str]) -> None:
        self._prefix = prefix
        self._tool = tool
        self._root = tool.parameters
        self._literal = literal
        self._rules: list[str] = []

    def _json_rule(self, schema: object) -> str:
        """Return the name of a rule for the JSON of a value."""
        rule = f"{self._prefix}_json_{len(self._rules)}"
        self._rules.append(f"{rule}: {lark_json(with_definitions(schema, self._root))}")
        return rule

    def _check(
        self, schema: Mapping[str, Any], known: Iterable[str], name: str = "the schema"
    ) -> None:
        """Require that a schema has no keywords but known ones."""
        if unknown := schema.keys() - {*known}:
            raise self._error(f"unsupported keywords in {name}: {', '.join(sorted(unknown))}")

    def _error(self, reason: str) -> BadRequestError:
        return BadRequestError(
            f"tool_choice: calls to {self._tool.name!r} cannot be enforced in this model's "
            f"tool-call format ({self.syntax}): {reason}",
            param="tool_choice",
        )


def properties_of(schema: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the schemas of an object's properties, and the names of those that are required.

    A required property without a schema may have any value.
    """
    required = list(schema.get("required", ()))
    properties = {**schema.get("properties", {})}
    properties.update((key, {}) for key in required if key not in properties)
    return properties, set(required)
