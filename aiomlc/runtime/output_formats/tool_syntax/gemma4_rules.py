"""Values of Gemma 4's calls, and their grammar rules, built from the JSON schemas of functions."""

from __future__ import annotations

__all__ = ("QUOTE", "Gemma4Rules", "render_value")

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, final

from aiomlc.runtime.grammar.grammar import lark_json
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from aiomlc.runtime.output_formats.tool_syntax.tool_rules import ToolRules, properties_of
from aiomlc.runtime.output_formats.tool_syntax.typed_value import ROOT_KEYWORDS, resolve

QUOTE: Final = '<|"|>'  #: Stands before and after a string, in which nothing is escaped.

_PLAIN_KEY = re.compile(r"[\w.\-]+")
_NAME = re.compile(r"[\w.\-]{1,128}")
_ANNOTATIONS = frozenset(
    (*("default", "deprecated", "description", "examples", "title", "type"), "$defs", "definitions")
)
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# What is enforced of a schema, by its type.
_KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "array": ("items", "minItems", "maxItems"),
    "boolean": (),
    "integer": _BOUNDS,
    "null": (),
    "number": _BOUNDS,
    "object": ("properties", "required", "additionalProperties"),
    "string": (),
}


def render_value(value: object) -> str:
    """Return a JSON value as the model generates it."""
    match value:
        case str():
            return f"{QUOTE}{value}{QUOTE}"
        case Mapping():
            items = (f"{_render_key(key)}:{render_value(item)}" for key, item in value.items())
            return f"{{{','.join(items)}}}"
        case list() | tuple():
            return f"[{','.join(map(render_value, value))}]"
        case _:
            return json.dumps(value)


def _render_key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else f"{QUOTE}{key}{QUOTE}"


@final
class Gemma4Rules(ToolRules):
    """The Lark rules of the arguments of one function.

    Properties come in the order of the schema, and others than those of the schema do not. A
    reference is a rule, so that it may be circular.

    Args:
        prefix: The prefix of all rule names.
        tool: The function.
        literal: Converts fixed text to a Lark expression.
    """

    syntax = "Gemma 4"

    def __init__(self, prefix: str, tool: ToolSchema, literal: Callable[[str], str]) -> None:
        super().__init__(prefix, tool, literal)
        self._shared: dict[str, str] = {}  # The rules that several values have, by what they are.

    def arguments(self) -> tuple[str, list[str]]:
        """Return all arguments as a Lark expression, and the rules that it refers to.

        Raises:
            BadRequestError: If a name cannot be written, or a schema has keywords that cannot be
                enforced.
        """
        if not _NAME.fullmatch(self._tool.name):
            raise self._error("the function name has other characters than letters, digits, _.-")

        self._check(self._root, ROOT_KEYWORDS)
        return self._object(self._root), self._rules

    def _value(self, schema: Any) -> str:  # noqa: ANN401 - any JSON.
        match schema:
            case {"$ref": str(reference)}:
                return self._share(reference, lambda: self._value(self._resolve(reference)))
            case {"enum": [*values]}:
                return self._constants(schema, values)
            case {"const": value}:
                return self._constants(schema, [value])
            case {"anyOf": [*choices]} | {"oneOf": [*choices]} | {"allOf": [_] as choices}:
                self._check(schema, _ANNOTATIONS | {"anyOf", "oneOf", "allOf"})
                return self._any_of(map(self._value, choices))
            case {"type": str() | list() as names}:
                names = [names] if isinstance(names, str) else names
                return self._typed(schema, names)
            case True | None:
                return self._any()
            case Mapping():
                implied = [name for name in _KEYWORDS if schema.keys() & {*_KEYWORDS[name]}]
                return self._typed(schema, implied) if implied else self._untyped(schema)
            case _:
                raise self._error(f"no value matches the schema {json.dumps(schema)}")

    def _resolve(self, reference: str) -> object:
        target = self._root if reference == "#" else resolve(reference, self._root)
        if target is None:
            raise self._error(f"the reference {reference!r} leads nowhere")

        return target

    def _untyped(self, schema: Mapping[str, Any]) -> str:
        self._check(schema, _ANNOTATIONS)
        return self._any()

    def _typed(self, schema: Mapping[str, Any], names: list[str]) -> str:
        if unknown := [name for name in names if name not in _KEYWORDS]:
            raise self._error(f"unknown types in the schema: {', '.join(map(str, unknown))}")

        known = {keyword for name in names for keyword in _KEYWORDS[name]}
        self._check(schema, _ANNOTATIONS | known)
        return self._any_of(self._of_type(schema, name) for name in names)

    def _of_type(self, schema: Mapping[str, Any], name: str) -> str:
        match name:
            case "string":
                return self._string()
            case "array":
                return self._array(schema)
            case "object":
                return self._object(schema)
            case _:
                bounds = {key: schema[key] for key in _KEYWORDS[name] if key in schema}
                return self._rule(lark_json({"type": name, **bounds}))

    def _constants(self, schema: Mapping[str, Any], values: list[Any]) -> str:
        """Return those of the values that have the type of the schema."""
        self._check(schema, _ANNOTATIONS | {"enum", "const"})
        names = schema.get("type")
        names = [names] if isinstance(names, str) else names
        fitting = [value for value in values if names is None or _types(value) & {*names}]
        if not fitting:
            raise self._error("no value of an enum has the type of its schema")

        if any(QUOTE in text for text in _texts(fitting)):
            raise self._error(f"a text contains {QUOTE}, which ends it")

        return self._any_of(self._literal(render_value(value)) for value in fitting)

    def _array(self, schema: Mapping[str, Any]) -> str:
        least = int(schema.get("minItems", 0))
        most = int(schema["maxItems"]) if "maxItems" in schema else None
        if most is not None and most < least:
            raise self._error(f"minItems ({least}) is greater than maxItems ({most})")

        if most == 0:
            return self._literal("[]")

        item = self._value(schema.get("items"))
        last = "" if most is None else most - 1
        more = f'("," {item}){{{max(0, least - 1)},{last}}}'
        items = f"{item} {more}" if least else f"({item} {more})?"
        return self._rule(f'"[" {items} "]"')

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties, required = properties_of(schema)
        others = schema.get("additionalProperties", True)
        if not properties and others is not False:
            return self._entries(self._value(others))

        return self._rule(f'"{{" {self._chain(properties, required)} "}}"')

    def _chain(self, properties: Mapping[str, Any], required: set[str]) -> str:
        """Return the rule of all properties: each with and without a comma before it."""
        first = following = self._rule('""')
        for key, schema in reversed(list(properties.items())):
            if schema is False:
                continue

            if QUOTE in key:
                raise self._error(f"a parameter's name contains {QUOTE}, which ends it")

            entry = self._rule(f"{self._literal(_render_key(key) + ':')} {self._value(schema)}")
            omitted = ("", "") if key in required else (f" | {first}", f" | {following}")
            first, following = (
                self._rule(f"{comma}{entry} {following}{rest}")
                for comma, rest in zip(("", '"," '), omitted, strict=True)
            )
        return first

    def _entries(self, value: str) -> str:
        """Return an object with any keys."""

        def key() -> str:
            name = f"KEY_{self._prefix.upper()}"
            self._rules.append(rf"{name}: /[a-zA-Z0-9_.\-]{{1,64}}/")
            return name

        entry = self._rule(f'{self._share("key", key)} ":" {value}')
        return self._rule(f'"{{" ({entry} ("," {entry})*)? "}}"')

    def _any(self) -> str:
        def choices() -> str:
            scalar = self._rule(lark_json({"type": ["number", "boolean", "null"]}))
            array, entries = self._array({"items": {}}), self._entries(self._value({}))
            return self._any_of((self._string(), scalar, array, entries))

        return self._share("any", choices)

    def _string(self) -> str:
        def text() -> str:
            quote = self._literal(QUOTE)
            name = f"{self._prefix}_text"
            attribute = "" if quote.startswith("<[") else "[lazy]"
            self._rules.append(rf"{name}{attribute}: /(.|\n)*/ {quote}")
            return f"{quote} {name}"

        return self._share("string", text)

    def _any_of(self, choices: Iterable[str]) -> str:
        return f"({' | '.join(choices)})"

    def _share(self, key: str, write: Callable[[], str]) -> str:
        """Return the rule of what `write` returns, which may refer to the rule itself."""
        if key not in self._shared:
            name = self._shared[key] = f"{self._prefix}_shared_{len(self._shared)}"
            self._rules.append(f"{name}: {write()}")
        return self._shared[key]

    def _rule(self, expression: str) -> str:
        name = f"{self._prefix}_{len(self._rules)}"
        self._rules.append(f"{name}: {expression}")
        return name


def _types(value: object) -> frozenset[str]:
    match value:
        case bool():
            return frozenset(("boolean",))
        case int():
            return frozenset(("integer", "number"))
        case float():
            return frozenset(("integer", "number") if value.is_integer() else ("number",))
        case str():
            return frozenset(("string",))
        case None:
            return frozenset(("null",))
        case _:
            return frozenset(("object",) if isinstance(value, Mapping) else ("array",))


def _texts(value: object) -> Iterable[str]:
    """Yield all strings within a JSON value, keys included."""
    match value:
        case str():
            yield value
        case Mapping():
            for key, item in value.items():
                yield key
                yield from _texts(item)
        case list():
            for item in value:
                yield from _texts(item)
        case _:
            pass
