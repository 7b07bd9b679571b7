"""The grammar of arguments that are tagged one by one, from the schemas of their functions."""

from __future__ import annotations

__all__ = ("TaggedRules",)

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.grammar.grammar import lark_json
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from aiomlc.runtime.output_formats.tool_syntax.typed_value import (
    ROOT_KEYWORDS,
    Schema,
    resolve,
    types_of,
    with_definitions,
)

_OF_BARE_TEXT = {
    *("const", "default", "deprecated", "description", "enum", "examples", "title", "type"),
}
_NULL = "null"


class ArgumentLayout(NamedTuple):
    """Fixed texts around the key and the value of an argument."""

    before_key: str
    before_value: str
    after_json: str  #: Behind a value that says itself where it ends.
    value_end: str  #: What no bare text contains.
    behind: str


@final
class TaggedRules:
    """The rules of one function's arguments."""

    def __init__(
        self, prefix: str, tool: ToolSchema, layout: ArgumentLayout, write: Callable[[str], str]
    ) -> None:
        self._prefix = prefix
        self._tool = tool
        self._root = tool.parameters
        self._layout = layout
        self._write = write
        self._rules: list[str] = []

    def arguments(self) -> tuple[str, list[str]]:
        """All arguments as a part of a rule, and the rules it refers to.

        Raises:
            BadRequestError: the schema says what bare text cannot be held to.
        """
        unknown = self._root.keys() - ROOT_KEYWORDS
        if unknown:
            raise self._error(", ".join(sorted(unknown)))

        required = list(self._root.get("required", ()))
        properties = {**self._root.get("properties", {})}
        properties.update((key, {}) for key in required if key not in properties)
        if not properties and self._root.get("additionalProperties") is not False:
            return f"({self._free()})*", self._rules

        parts = [
            f"({self._argument(key, schema)})" + ("" if key in required else "?")
            for key, schema in properties.items()
            if schema is not False
        ]
        return " ".join(parts), self._rules

    def _argument(self, key: str, schema: object) -> str:
        layout, write = self._layout, self._write
        head = write(f"{layout.before_key}{key}{layout.before_value}")
        choices = " | ".join(self._values(key, schema))
        return f"{head} ({choices}) {write(layout.behind)}"

    def _free(self) -> str:
        layout, write = self._layout, self._write
        key = f"KEY_{self._prefix.upper()}"
        self._rules.append(rf"{key}: /[^<>\s]{{1,64}}/")
        head = f"{write(layout.before_key)} {key} {write(layout.before_value)}"
        return f"{head} {self._bare_text()} {write(layout.behind)}"

    def _values(self, key: str, schema: object) -> Iterator[str]:
        """The forms of a value, each up to behind its end."""
        types = types_of(schema, self._root)
        if types is None or "string" not in types:
            yield self._json(schema)
            return

        # Beside a string, what is read as anything else is null alone.
        for choice in self._choices(schema):
            types = types_of(choice, self._root) or frozenset()
            values = choice.get("enum", [choice["const"]] if "const" in choice else None)
            if "null" in types and (values is None or None in values):
                yield self._fixed(_NULL)

            if values is not None:
                yield from (self._fixed(value) for value in values if isinstance(value, str))
            elif "string" in types:
                yield self._free_string(key, choice)

    def _choices(self, schema: Any) -> Iterator[Schema]:  # noqa: ANN401 - any JSON.
        match schema:
            case {"type": _} | {"enum": _} | {"const": _}:
                yield schema
            case {"$ref": str(reference)}:
                yield from self._choices(resolve(reference, self._root))
            case {"anyOf": [*choices]} | {"oneOf": [*choices]} | {"allOf": [*choices]}:
                for choice in choices:
                    yield from self._choices(choice)

    def _free_string(self, key: str, schema: Schema) -> str:
        unknown = schema.keys() - _OF_BARE_TEXT
        if unknown:
            raise self._error(f"{', '.join(sorted(unknown))} of {key!r}")

        return self._bare_text()

    def _fixed(self, text: str) -> str:
        return self._write(f"{text}{self._layout.after_json}")

    def _json(self, schema: object) -> str:
        rule = f"{self._prefix}_json_{len(self._rules)}"
        self._rules.append(f"{rule}: {lark_json(with_definitions(schema, self._root))}")
        return f"{rule} {self._write(self._layout.after_json)}"

    def _bare_text(self) -> str:
        end = self._write(self._layout.value_end)
        rule = f"{self._prefix}_text_{len(self._rules)}"
        attribute = "" if end.startswith("<[") else "[lazy]"
        self._rules.append(rf"{rule}{attribute}: /(.|\n)*/ {end}")
        return rule

    def _error(self, what: str) -> BadRequestError:
        return BadRequestError(
            f"tool_choice: calls of {self._tool.name!r} cannot be enforced in this model's form, "
            f"in which values are bare text: {what}",
            param="tool_choice",
        )
