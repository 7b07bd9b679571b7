"""Checks of JSON schemas that the grammar library accepts but cannot enforce."""

from __future__ import annotations

__all__ = ("check_schemas",)

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, final
from urllib.parse import unquote

from aiomlc.errors import GrammarError
from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.grammar.schema_numbers import check_numbers

Schema = Mapping[str, Any]
_JSON_DIRECTIVE = "%json"
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_MAPS_OF_SCHEMAS = ("properties", "patternProperties")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties")
# The library computes remainders in 32 bits.
_MAX_REMAINDER = 2**32


def check_schemas(grammar: Grammar) -> None:
    """Require that the JSON schemas in a grammar describe finite values, with exact remainders.

    Raises:
        GrammarError: If a schema is circular: each of its values would contain another one. Or if
            a `type` does not exist, a `multipleOf` is too large or has too many digits, or another
            number cannot be enforced exactly.
    """
    for schema in _schemas(grammar):
        check_numbers(schema)
        _SchemaGraph(schema).check()


def _schemas(grammar: Grammar) -> Iterator[Schema]:
    match grammar.kind:
        case "json_schema":
            yield from _parse(grammar.source)
        case "lark":
            yield from _embedded(grammar.source)
        case "llguidance":
            for described in _parse(grammar.source):
                for part in described.get("grammars", ()):
                    yield from filter(None, [part.get("json_schema")])
                    yield from _embedded(part.get("lark_grammar") or "")
        case "regex":
            return


def _parse(source: str) -> Iterator[Schema]:
    """Yield the object in a text; nothing if it has none, which compiling it will report."""
    try:
        value, _ = json.JSONDecoder().raw_decode(source.lstrip())
    except (ValueError, RecursionError):
        return

    if isinstance(value, dict):
        yield value


def _embedded(lark: str) -> Iterator[Schema]:
    for after in lark.split(_JSON_DIRECTIVE)[1:]:
        yield from _parse(after)


@final
class _SchemaGraph:
    """The schemas that a root reaches, and which others must have a value if they have one.

    A *group* of a schema is a set of schemas of which one must have a finite value. A schema has
    one if all of its groups do. Schemas are identified by `id`, as they are parts of one tree.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._names: dict[int, str] = {id(root): "#"}
        self._open_groups: dict[int, int] = {}
        self._groups_of: dict[int, list[list[int]]] = {}

    def check(self) -> None:
        finite = self._visit()
        # Each group is a list of its owner, which is emptied when a member is known to be finite.
        while finite:
            for group in self._groups_of.pop(finite.pop(), ()):
                for owner in group:
                    self._open_groups[owner] -= 1
                    if self._open_groups[owner] == 0:
                        finite.append(owner)
                group.clear()

        # The last one first: the root is circular because of another schema, if there is one.
        for schema, num_open in reversed(self._open_groups.items()):
            if num_open > 0 and schema in self._names:
                raise GrammarError(
                    f"the schema {self._names[schema]} is circular: each of its values would "
                    "contain another one; make a property optional, or allow another type"
                )

    def _visit(self) -> list[int]:
        """Visit every schema; return those without groups."""
        without_groups = []
        waiting: list[tuple[str, Schema]] = [("#", self._root)]
        while waiting:
            path, schema = waiting.pop()
            if id(schema) in self._open_groups:
                continue

            _check_type(path, schema)
            _check_multiple(schema)
            groups = list(self._groups(schema))
            self._open_groups[id(schema)] = len(groups)
            if not groups:
                without_groups.append(id(schema))
            for members in groups:
                group = [id(schema)]
                for member in members:
                    self._groups_of.setdefault(id(member), []).append(group)
            waiting += self._children(path, schema)

        return without_groups

    def _children(self, path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
        """Yield the paths of the schemas that a schema contains or refers to, and these."""
        for target in self._target(schema):
            yield schema["$ref"], target
        for key in _SCHEMAS:
            yield from _named(path, [(key, schema.get(key))])
        for key in _LISTS_OF_SCHEMAS:
            schemas = schema.get(key)
            if isinstance(schemas, list):
                yield from _named(f"{path}/{key}", enumerate(schemas))
        for key in _MAPS_OF_SCHEMAS:
            schemas = schema.get(key)
            if isinstance(schemas, dict):
                yield from _named(f"{path}/{key}", schemas.items())

    def _groups(self, schema: Schema) -> Iterator[list[Schema]]:
        if "const" in schema or "enum" in schema:
            return

        for member in (*self._target(schema), *_objects(schema.get("allOf"))):
            yield [member]
        for key in ("anyOf", "oneOf"):
            members = schema.get(key)
            if isinstance(members, list) and members and all(type(m) is dict for m in members):
                yield members

        if schema.get("type") in ("object", ["object"]):
            yield from _required_properties(schema)
        elif schema.get("type") in ("array", ["array"]):
            yield from _required_items(schema)

    def _target(self, schema: Schema) -> Iterator[Schema]:
        """Yield the schema that a reference refers to, if it is in the same document."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return

        target: Any = self._root
        for part in unquote(reference[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            elif isinstance(target, dict) and key in target:
                target = target[key]
            else:
                return

        if isinstance(target, dict):
            self._names.setdefault(id(target), reference)
            yield target


def _required_properties(schema: Schema) -> Iterator[list[Schema]]:
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, dict) and isinstance(required, list):
        for name in required:
            if isinstance(name, str):
                yield from ([member] for member in _objects([properties.get(name)]))


def _required_items(schema: Schema) -> Iterator[list[Schema]]:
    min_items, prefix = schema.get("minItems"), schema.get("prefixItems", [])
    if not isinstance(min_items, int) or not isinstance(prefix, list):
        return

    items = [] if min_items <= len(prefix) else [schema.get("items")]
    yield from ([member] for member in _objects([*prefix[: max(min_items, 0)], *items]))


def _named(path: str, values: Iterable[tuple[object, object]]) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas among named values, with their paths."""
    for name, value in values:
        yield from ((f"{path}/{name}", schema) for schema in _objects([value]))


def _objects(values: object) -> Iterator[Schema]:
    if isinstance(values, list):
        yield from (value for value in values if isinstance(value, dict))


def _check_type(path: str, schema: Schema) -> None:
    types = schema.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if name not in _TYPES:
            raise GrammarError(
                f"the schema {path} has the type {name!r}; must be one of {', '.join(_TYPES)}"
            )


def _check_multiple(schema: Schema) -> None:
    value = schema.get("multipleOf")
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return

    _, digits, exponent = Decimal(str(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    num_decimals = max(0, -exponent)
    if exponent > 10 or num_decimals > 10 or len(digits) > 10:
        too_large = True
    else:
        divisor = int("".join(map(str, digits))) * 10 ** max(0, exponent)
        too_large = 10 * divisor + 9 * 10**num_decimals >= _MAX_REMAINDER
    if too_large:
        raise GrammarError(
            f"multipleOf: must be less than 429,000,000 with at most 8 decimals, got {value}"
        )
