"""Parsers of the content of a response-template region: text, JSON dialects, tags and lines."""

from __future__ import annotations

__all__ = ("RegionContent", "ValueConverter", "parse_content_type")

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

#: Converts an argument's name and text to its value by the function's JSON schema. The value is
#: wrapped in a tuple; None if the schema does not specify a type.
ValueConverter = Callable[[str, str], "tuple[object] | None"]
_KEY = re.compile(r"(?<=[{,])(\w+):")
_TRUE = ("true", "1")
_STASH_START, _STASH_END = "\x01", "\x02"
_STASHED = re.compile("\x01(\\d+)\x02")


class RegionContent(Protocol):
    """The syntax of a value."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Strings within the content, which may contain special tokens."""
        ...

    def parse(self, text: str, convert: ValueConverter) -> Any:  # noqa: ANN401 - JSON.
        """Return the value of a text.

        Raises:
            ValueError: If the text does not have this syntax.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """Text, a number or a Boolean."""

    kind: str = "text"
    strip: bool = True

    @property
    def markers(self) -> tuple[str, ...]:
        return ()

    def parse(self, text: str, convert: ValueConverter) -> object:
        del convert
        text = text.strip() if self.strip else text
        match self.kind:
            case "int":
                return int(text)
            case "float":
                return float(text)
            case "bool":
                return text.lower() in _TRUE
            case _:
                return text


@dataclass(frozen=True, slots=True)
class Json:
    """JSON or a dialect of it."""

    string_delimiters: tuple[tuple[str, str], ...] = ()  #: Start and end, in place of quotes.
    unquoted_keys: bool = False
    allow_text: bool = False  #: Whether invalid JSON is taken as text.

    @property
    def markers(self) -> tuple[str, ...]:
        return tuple(marker for pair in self.string_delimiters for marker in pair)

    def parse(self, text: str, convert: ValueConverter) -> Any:  # noqa: ANN401 - JSON.
        del convert
        try:
            return json.loads(self._to_json(text))
        except ValueError:
            if self.allow_text:
                return text.strip()

            raise

    def _to_json(self, text: str) -> str:
        """Convert the dialect to JSON. A delimiter within a string of other delimiters is text."""
        if not self.string_delimiters:
            return _KEY.sub(r'"\1":', text) if self.unquoted_keys else text

        strings = re.compile(
            "|".join(
                f"{re.escape(start)}(.*?){re.escape(end)}" for start, end in self.string_delimiters
            ),
            re.DOTALL,
        )
        if _STASH_START in text or _STASH_END in text:
            raise ValueError("control characters are not valid JSON")

        # Strings are stashed while keys are quoted, since a string may contain what looks like a
        # key.
        stash: list[str] = []

        def stash_string(match: re.Match[str]) -> str:
            stash.append(next(group for group in match.groups() if group is not None))
            return f"{_STASH_START}{len(stash) - 1}{_STASH_END}"

        text = strings.sub(stash_string, text)
        text = _KEY.sub(r'"\1":', text) if self.unquoted_keys else text
        return _STASHED.sub(lambda match: json.dumps(stash[int(match[1])]), text)


@dataclass(frozen=True, slots=True)
class Tags:
    """Fields in tags."""

    pattern: re.Pattern[str]  #: Of one tag, with the groups `key` and `value`.
    value: RegionContent | None = None  #: The syntax of values; None for text as it is.
    merge_duplicates: bool = False  #: Whether the values of a repeated key become a list.

    @property
    def markers(self) -> tuple[str, ...]:
        pattern = re.sub(r"\\(\W)", r"\1", self.pattern.pattern)
        return (pattern, *(self.value.markers if self.value is not None else ()))

    def parse(self, text: str, convert: ValueConverter) -> dict[str, object]:
        fields: dict[str, object] = {}
        for tag in self.pattern.finditer(text):
            key = tag["key"]
            value = _convert_value(key, tag["value"] or "", self.value, convert)
            if self.merge_duplicates and key in fields:
                previous = fields[key]
                value = [*(previous if isinstance(previous, list) else [previous]), value]

            fields[key] = value

        return fields


@dataclass(frozen=True, slots=True)
class Lines:
    """Fields on separate lines."""

    line_end: str = "\n"
    separator: str = ":"  #: Between key and value.
    value: RegionContent | None = None  #: The syntax of values; None for text as it is.
    strip: bool = True

    @property
    def markers(self) -> tuple[str, ...]:
        return (
            self.line_end,
            self.separator,
            *(self.value.markers if self.value is not None else ()),
        )

    def parse(self, text: str, convert: ValueConverter) -> dict[str, object]:
        fields: dict[str, object] = {}
        for line in text.split(self.line_end):
            key, separator, value = self._strip(line).partition(self.separator)
            if separator:
                key = self._strip(key)
                fields[key] = _convert_value(key, self._strip(value), self.value, convert)

        return fields

    def _strip(self, text: str) -> str:
        return text.strip() if self.strip else text


def parse_content_type(kind: object, arguments: Mapping[str, Any]) -> RegionContent | None:
    """Return the syntax that a response template names, or None if it is not supported.

    Args:
        kind: The name of the content type, such as "json".
        arguments: The options of the content type.
    """
    match kind:
        case "text" | "int" | "float" | "bool" if arguments.keys() <= {"strip"}:
            return Plain(str(kind), strip=bool(arguments.get("strip", True)))
        case "json" if arguments.keys() <= {"string_delims", "unquoted_keys", "allow_non_json"}:
            return _json(arguments)
        case "xml-inline" if arguments.keys() <= {
            *("tag_pattern", "value_parser", "merge_duplicates"),
        }:
            return _tags(arguments)
        case "kv-lines" if arguments.keys() <= {"line_sep", "kv_sep", "value_parser", "strip"}:
            return _lines(arguments)
        case _:
            return None


def _json(arguments: Mapping[str, Any]) -> Json | None:
    pairs = arguments.get("string_delims", ())
    if not isinstance(pairs, (list, tuple)):
        return None

    delimiters: list[tuple[str, str]] = []
    for pair in pairs:
        match pair:
            case [str(start), str(end)] if start and end:
                delimiters.append((start, end))
            case _:
                return None

    return Json(
        tuple(delimiters),
        unquoted_keys=bool(arguments.get("unquoted_keys")),
        allow_text=bool(arguments.get("allow_non_json")),
    )


def _tags(arguments: Mapping[str, Any]) -> Tags | None:
    try:
        pattern = re.compile(arguments["tag_pattern"], re.DOTALL)
    except (re.error, KeyError, TypeError):
        return None

    value, is_supported = _value_syntax(arguments)
    if not is_supported or not {"key", "value"} <= pattern.groupindex.keys():
        return None

    return Tags(pattern, value, merge_duplicates=bool(arguments.get("merge_duplicates")))


def _lines(arguments: Mapping[str, Any]) -> Lines | None:
    line_end, separator = arguments.get("line_sep", "\n"), arguments.get("kv_sep", ":")
    value, is_supported = _value_syntax(arguments)
    is_text = isinstance(line_end, str) and isinstance(separator, str)
    if not is_supported or not is_text or not line_end or not separator:
        return None

    return Lines(line_end, separator, value, strip=bool(arguments.get("strip", True)))


def _value_syntax(arguments: Mapping[str, Any]) -> tuple[RegionContent | None, bool]:
    """Return the syntax of field values (None for text), and whether it is supported."""
    value_parser = arguments.get("value_parser")
    if value_parser is None:
        return None, True

    if not isinstance(value_parser, Mapping):
        return None, False

    options = value_parser.get("args", {})
    if not isinstance(options, Mapping):
        return None, False

    content = parse_content_type(value_parser.get("name", "text"), options)
    return content, content is not None


def _convert_value(
    key: str, text: str, content: RegionContent | None, convert: ValueConverter
) -> object:
    if (converted := convert(key, text)) is not None:
        return converted[0]

    return text if content is None else content.parse(text, convert)
