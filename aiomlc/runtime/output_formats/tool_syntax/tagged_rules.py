"""Grammar rules of tagged arguments, built from the JSON schemas of the functions."""

from __future__ import annotations

__all__ = ("TaggedRules",)

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from aiomlc.runtime.output_formats.tool_syntax.tool_rules import ToolRules, properties_of
from aiomlc.runtime.output_formats.tool_syntax.typed_value import (
    ROOT_KEYWORDS,
    Schema,
    resolve,
    types_of,
)

# The schema keywords that are supported for unquoted strings.
_STRING_KEYWORDS = {
    *("const", "default", "deprecated", "description", "enum", "examples", "title", "type"),
}


class ArgumentLayout(NamedTuple):
    """The fixed text around the key and the value of an argument."""

    before_key: str
    before_value: str
    after_json: str  #: After a JSON value or a constant, whose end the grammar knows.
    value_end: str  #: The end of an unquoted string, which cannot contain this text.
    after_argument: str


@final
class TaggedRules(ToolRules):
    """The Lark rules of the arguments of one function.

    Args:
        prefix: The prefix of all rule names.
        tool: The function.
        layout: The fixed text around keys and values.
        literal: Converts fixed text to a Lark expression.
    """

    syntax = "unquoted values"

    def __init__(
        self, prefix: str, tool: ToolSchema, layout: ArgumentLayout, literal: Callable[[str], str]
    ) -> None:
        super().__init__(prefix, tool, literal)
        self._layout = layout

    def arguments(self) -> tuple[str, list[str]]:
        """Return all arguments as a Lark expression, and the rules that it refers to.

        Raises:
            BadRequestError: If the schema has keywords that cannot be enforced.
        """
        self._check(self._root, ROOT_KEYWORDS)
        properties, required = properties_of(self._root)
        if not properties and self._root.get("additionalProperties") is not False:
            return f"({self._any_argument()})*", self._rules

        parts = [
            f"({self._argument(key, schema)})" + ("" if key in required else "?")
            for key, schema in properties.items()
            if schema is not False
        ]
        return " ".join(parts), self._rules

    def _argument(self, key: str, schema: object) -> str:
        layout, literal = self._layout, self._literal
        head = literal(f"{layout.before_key}{key}{layout.before_value}")
        choices = " | ".join(self._values(key, schema))
        return f"{head} ({choices}) {literal(layout.after_argument)}"

    def _any_argument(self) -> str:
        layout, literal = self._layout, self._literal
        key = f"KEY_{self._prefix.upper()}"
        self._rules.append(rf"{key}: /[^<>\s]{{1,64}}/")
        head = f"{literal(layout.before_key)} {key} {literal(layout.before_value)}"
        return f"{head} {self._unquoted_value()} {literal(layout.after_argument)}"

    def _values(self, key: str, schema: object) -> Iterator[str]:
        """Yield the alternatives of a value, each with the text after it."""
        types = types_of(schema, self._root)
        if types is None or "string" not in types:
            yield self._json(schema)
            return

        # If a string is allowed, the parser takes every value but null for a string.
        for choice in self._choices(schema):
            types = types_of(choice, self._root) or frozenset()
            values = choice.get("enum", [choice["const"]] if "const" in choice else None)
            if "null" in types and (values is None or None in values):
                yield self._constant("null")

            if values is not None:
                yield from (self._constant(value) for value in values if isinstance(value, str))
            elif "string" in types:
                yield self._string(key, choice)

    def _choices(self, schema: Any) -> Iterator[Schema]:  # noqa: ANN401 - any JSON.
        match schema:
            case {"type": _} | {"enum": _} | {"const": _}:
                yield schema
            case {"$ref": str(reference)}:
                yield from self._choices(resolve(reference, self._root))
            case {"anyOf": [*choices]} | {"oneOf": [*choices]} | {"allOf": [*choices]}:
                for choice in choices:
                    yield from self._choices(choice)
            case _:
                pass

    def _string(self, key: str, schema: Schema) -> str:
        self._check(schema, _STRING_KEYWORDS, f"the schema of {key!r}")
        return self._unquoted_value()

    def _constant(self, text: str) -> str:
        return self._literal(f"{text}{self._layout.after_json}")

    def _json(self, schema: object) -> str:
        return f"{self._json_rule(schema)} {self._literal(self._layout.after_json)}"

    def _unquoted_value(self) -> str:
        end = self._literal(self._layout.value_end)
        rule = f"{self._prefix}_text_{len(self._rules)}"
        attribute = "" if end.startswith("<[") else "[lazy]"
        self._rules.append(rf"{rule}{attribute}: /(.|\n)*/ {end}")
        return rule
