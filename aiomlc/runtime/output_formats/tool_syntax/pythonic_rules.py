"""The grammar of Python's calls, from the schemas of their functions."""

from __future__ import annotations

__all__ = ("PythonicRules",)

from collections.abc import Callable, Iterator
from typing import Any, final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.grammar.grammar import lark_json
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from aiomlc.runtime.output_formats.tool_syntax.typed_value import (
    ROOT_KEYWORDS,
    resolve,
    with_definitions,
)

_WORDS = {"boolean": ("True", "False"), "null": ("None",)}
_MAX_DEPTH = 8  # Of references, which may be circular.


@final
class PythonicRules:
    """The rules of one function's call.

    Values are JSON, which Python reads alike but for three names: these are Python's, unless they
    stand within a list or an object.
    """

    def __init__(self, prefix: str, tool: ToolSchema, write: Callable[[str], str]) -> None:
        self._prefix = prefix
        self._tool = tool
        self._root = tool.parameters
        self._write = write
        self._rules: list[str] = []

    def call(self) -> tuple[str, list[str]]:
        """The call as a part of a rule, and the rules it refers to.

        Raises:
            BadRequestError: Python has no such call, or the schema is not one of arguments alone.
        """
        unknown = self._root.keys() - ROOT_KEYWORDS
        if unknown:
            raise self._error(", ".join(sorted(unknown)))

        if not all(part.isidentifier() for part in self._tool.name.split(".")):
            raise self._error("its name")

        required = list(self._root.get("required", ()))
        properties = {**self._root.get("properties", {})}
        properties.update((key, {}) for key in required if key not in properties)
        is_free = not properties and self._root.get("additionalProperties") is not False
        arguments = self._free() if is_free else self._chain(properties, set(required))
        return f"{self._write(self._tool.name + '(')} {arguments} {self._write(')')}", self._rules

    def _chain(self, properties: dict[str, Any], required: set[str]) -> str:
        """Arguments in their order; a comma depends on whether one stands before it."""
        tails = dict.fromkeys((True, False), f"{self._prefix}_end")
        self._rules.append(f'{self._prefix}_end: ""')
        for number, (key, schema) in reversed(list(enumerate(properties.items()))):
            if schema is False:
                continue

            if not key.isidentifier():
                raise self._error(repr(key))

            value = " | ".join(self._values(schema))
            self._rules.append(f"{self._prefix}_{number}: {self._write(key + '=')} ({value})")
            tails = {
                is_first: self._link(number, tails, is_first=is_first, may_miss=key not in required)
                for is_first in (True, False)
            }

        return tails[True]

    def _link(self, number: int, tails: dict[bool, str], *, is_first: bool, may_miss: bool) -> str:
        name = f"{self._prefix}_{number}_{'first' if is_first else 'next'}"
        comma = "" if is_first else '", "'
        missing = f" | {tails[is_first]}" if may_miss else ""
        self._rules.append(f"{name}: {comma} {self._prefix}_{number} {tails[False]}{missing}")
        return name

    def _free(self) -> str:
        key = f"KEY_{self._prefix.upper()}"
        self._rules.append(f"{key}: /[a-zA-Z_][a-zA-Z0-9_]*/")
        self._rules.append(f'{self._prefix}_any: {key} "=" {self._json({})}')
        return f'({self._prefix}_any (", " {self._prefix}_any)*)?'

    def _values(self, schema: Any, depth: int = 0) -> Iterator[str]:  # noqa: ANN401 - any JSON.
        match schema:
            case {"enum": _} | {"const": _}:
                yield self._json(schema)
            case {"type": "boolean" | "null" as name}:
                yield from map(self._write, _WORDS[name])
            case {"type": [*names]}:
                for name in names:
                    yield from self._values({**schema, "type": name}, depth)
            case {"$ref": str(reference)} if depth < _MAX_DEPTH:
                yield from self._values(resolve(reference, self._root), depth + 1)
            case {"anyOf": [*choices]} | {"oneOf": [*choices]} if depth < _MAX_DEPTH:
                for choice in choices:
                    yield from self._values(choice, depth + 1)
            case _:
                yield self._json(schema)

    def _json(self, schema: object) -> str:
        rule = f"{self._prefix}_json_{len(self._rules)}"
        self._rules.append(f"{rule}: {lark_json(with_definitions(schema, self._root))}")
        return rule

    def _error(self, what: str) -> BadRequestError:
        return BadRequestError(
            f"tool_choice: calls of {self._tool.name!r} cannot be enforced in this model's form, "
            f"which is Python's: {what}",
            param="tool_choice",
        )
