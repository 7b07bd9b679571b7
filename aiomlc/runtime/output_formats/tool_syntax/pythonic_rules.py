"""Grammar rules of Python calls, built from the JSON schemas of the functions."""

from __future__ import annotations

__all__ = ("PythonicRules",)

from collections.abc import Iterator
from typing import Any, final

from aiomlc.runtime.output_formats.tool_syntax.tool_rules import ToolRules, properties_of
from aiomlc.runtime.output_formats.tool_syntax.typed_value import ROOT_KEYWORDS, resolve

_CONSTANTS = {"boolean": ("True", "False"), "null": ("None",)}
_MAX_DEPTH = 8  # The maximum depth of references, which may be circular.


@final
class PythonicRules(ToolRules):
    """The Lark rules of a call to one function.

    Values are JSON, which differs from Python only in the names of three constants. At the top
    level these are Python's names (`True`, `False`, `None`), within a list or an object JSON's.
    """

    syntax = "Python calls"

    def call(self) -> tuple[str, list[str]]:
        """Return the call as a Lark expression, and the rules that the expression refers to.

        Raises:
            BadRequestError: If a name is not a Python identifier, or the schema has unsupported
                keywords.
        """
        self._check(self._root, ROOT_KEYWORDS)
        if not all(part.isidentifier() for part in self._tool.name.split(".")):
            raise self._error("the function name is not a dotted Python identifier")

        properties, required = properties_of(self._root)
        if not properties and self._root.get("additionalProperties") is not False:
            arguments = self._any_arguments()
        else:
            arguments = self._chain(properties, required)

        head, tail = self._literal(f"{self._tool.name}("), self._literal(")")
        return f"{head} {arguments} {tail}", self._rules

    def _chain(self, properties: dict[str, Any], required: set[str]) -> str:
        """Return the rule of all arguments, in the order of the properties.

        Each argument has two rules: without a comma before it, for the first argument of a call,
        and with one.
        """
        tails = dict.fromkeys((True, False), f"{self._prefix}_end")
        self._rules.append(f'{self._prefix}_end: ""')
        for number, (key, schema) in reversed(list(enumerate(properties.items()))):
            if schema is False:
                continue

            if not key.isidentifier():
                raise self._error(f"the parameter {key!r} is not a Python identifier")

            value = " | ".join(self._values(schema))
            self._rules.append(f"{self._prefix}_{number}: {self._literal(key + '=')} ({value})")
            tails = {
                is_first: self._link(number, tails, is_first=is_first, optional=key not in required)
                for is_first in (True, False)
            }

        return tails[True]

    def _link(self, number: int, tails: dict[bool, str], *, is_first: bool, optional: bool) -> str:
        name = f"{self._prefix}_{number}_{'first' if is_first else 'next'}"
        comma = "" if is_first else '", "'
        omitted = f" | {tails[is_first]}" if optional else ""
        self._rules.append(f"{name}: {comma} {self._prefix}_{number} {tails[False]}{omitted}")
        return name

    def _any_arguments(self) -> str:
        key = f"KEY_{self._prefix.upper()}"
        self._rules.append(f"{key}: /[a-zA-Z_][a-zA-Z0-9_]*/")
        self._rules.append(f'{self._prefix}_any: {key} "=" {self._json_rule({})}')
        return f'({self._prefix}_any (", " {self._prefix}_any)*)?'

    def _values(self, schema: Any, depth: int = 0) -> Iterator[str]:  # noqa: ANN401 - any JSON.
        match schema:
            case {"enum": _} | {"const": _}:
                yield self._json_rule(schema)
            case {"type": "boolean" | "null" as name}:
                yield from map(self._literal, _CONSTANTS[name])
            case {"type": [*names]}:
                for name in names:
                    yield from self._values({**schema, "type": name}, depth)
            case {"$ref": str(reference)} if depth < _MAX_DEPTH:
                yield from self._values(resolve(reference, self._root), depth + 1)
            case {"anyOf": [*choices]} | {"oneOf": [*choices]} if depth < _MAX_DEPTH:
                for choice in choices:
                    yield from self._values(choice, depth + 1)
            case _:
                yield self._json_rule(schema)
