"""What stands in a region of a response template: text, JSON and its dialects, tags, lines."""

from __future__ import annotations

__all__ = ("RegionContent", "ValueReader", "read_content")

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

#: From an argument's name and its text to its value, by the schema of the function; None where
#: that does not say.
ValueReader = Callable[[str, str], "tuple[object] | None"]
_KEY = re.compile(r"(?<=[{,])(\w+):")
_TRUE = ("true", "1")
_ASIDE = "\x01\x02"


class RegionContent(Protocol):
    """A way to write a value."""

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts within, among which may be special tokens."""

    def read(self, text: str, typed: ValueReader) -> Any:  # noqa: ANN401 - JSON.
        """The value.

        Raises:
            ValueError: there is none.
        """


@dataclass(frozen=True, slots=True)
class Plain:
    """A text, or one number or truth value."""

    kind: str = "text"
    strip: bool = True

    @property
    def marks(self) -> tuple[str, ...]:
        """See `RegionContent`."""
        return ()

    def read(self, text: str, typed: ValueReader) -> object:
        """See `RegionContent`."""
        del typed
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
    """JSON, or what models write for it."""

    string_marks: tuple[tuple[str, str], ...] = ()  #: Around strings, instead of quotes.
    has_bare_keys: bool = False  #: The names of fields have no quotes.
    may_be_text: bool = False  #: What is no JSON is a text.

    @property
    def marks(self) -> tuple[str, ...]:
        """See `RegionContent`."""
        return tuple(mark for pair in self.string_marks for mark in pair)

    def read(self, text: str, typed: ValueReader) -> Any:  # noqa: ANN401 - JSON.
        """See `RegionContent`."""
        del typed
        try:
            return json.loads(self._as_json(text))
        except ValueError:
            if self.may_be_text:
                return text.strip()

            raise

    def _as_json(self, text: str) -> str:
        """The same in JSON's own form. Marks are looked for outside of what others enclose."""
        if not self.string_marks:
            return _KEY.sub(r'"\1":', text) if self.has_bare_keys else text

        strings = re.compile(
            "|".join(
                f"{re.escape(begin)}(.*?){re.escape(end)}" for begin, end in self.string_marks
            ),
            re.DOTALL,
        )
        if any(mark in text for mark in _ASIDE):
            raise ValueError("control characters are not JSON")

        # A string stands aside while names get their quotes: it may look like one of them.
        kept: list[str] = []

        def put_aside(found: re.Match[str]) -> str:
            kept.append(next(group for group in found.groups() if group is not None))
            return f"{_ASIDE[0]}{len(kept) - 1}{_ASIDE[1]}"

        text = strings.sub(put_aside, text)
        text = _KEY.sub(r'"\1":', text) if self.has_bare_keys else text
        return re.sub("\x01(\\d+)\x02", lambda found: json.dumps(kept[int(found[1])]), text)


@dataclass(frozen=True, slots=True)
class Tags:
    """Fields, each in a tag; a pattern has the groups `key` and `value`."""

    pattern: re.Pattern[str]
    value: RegionContent | None = None  #: None is the text as it stands.
    merges: bool = False  #: Of a field that is there twice, both values in a list.

    @property
    def marks(self) -> tuple[str, ...]:
        """See `RegionContent`."""
        own = re.sub(r"\\(\W)", r"\1", self.pattern.pattern)
        return (own, *(self.value.marks if self.value is not None else ()))

    def read(self, text: str, typed: ValueReader) -> dict[str, object]:
        """See `RegionContent`."""
        fields: dict[str, object] = {}
        for tag in self.pattern.finditer(text):
            key = tag["key"]
            value = _value(key, tag["value"] or "", self.value, typed)
            if self.merges and key in fields:
                before = fields[key]
                value = [*(before if isinstance(before, list) else [before]), value]

            fields[key] = value

        return fields


@dataclass(frozen=True, slots=True)
class Lines:
    """Fields, each on a line of its own."""

    line_end: str = "\n"
    separator: str = ":"
    value: RegionContent | None = None
    strip: bool = True

    @property
    def marks(self) -> tuple[str, ...]:
        """See `RegionContent`."""
        own = self.line_end, self.separator
        return (*own, *(self.value.marks if self.value is not None else ()))

    def read(self, text: str, typed: ValueReader) -> dict[str, object]:
        """See `RegionContent`."""
        fields: dict[str, object] = {}
        for line in text.split(self.line_end):
            key, mark, value = self._trimmed(line).partition(self.separator)
            if mark:
                key = self._trimmed(key)
                fields[key] = _value(key, self._trimmed(value), self.value, typed)

        return fields

    def _trimmed(self, text: str) -> str:
        return text.strip() if self.strip else text


def read_content(kind: object, arguments: Mapping[str, Any]) -> RegionContent | None:
    """The content that a template describes; None if that is none we know."""
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

    marks: list[tuple[str, str]] = []
    for pair in pairs:
        match pair:
            case [str(begin), str(end)] if begin and end:
                marks.append((begin, end))
            case _:
                return None

    return Json(
        tuple(marks),
        has_bare_keys=bool(arguments.get("unquoted_keys")),
        may_be_text=bool(arguments.get("allow_non_json")),
    )


def _tags(arguments: Mapping[str, Any]) -> Tags | None:
    try:
        pattern = re.compile(arguments["tag_pattern"], re.DOTALL)
    except (re.error, KeyError, TypeError):
        return None

    value, is_known = _value_content(arguments)
    if not is_known or not {"key", "value"} <= pattern.groupindex.keys():
        return None

    return Tags(pattern, value, merges=bool(arguments.get("merge_duplicates")))


def _lines(arguments: Mapping[str, Any]) -> Lines | None:
    line_end, separator = arguments.get("line_sep", "\n"), arguments.get("kv_sep", ":")
    value, is_known = _value_content(arguments)
    is_text = isinstance(line_end, str) and isinstance(separator, str)
    if not is_known or not is_text or not line_end or not separator:
        return None

    return Lines(line_end, separator, value, strip=bool(arguments.get("strip", True)))


def _value_content(arguments: Mapping[str, Any]) -> tuple[RegionContent | None, bool]:
    """The content of a field's value, and whether we know it."""
    given = arguments.get("value_parser")
    if given is None:
        return None, True

    if not isinstance(given, Mapping) or not isinstance(given.get("args", {}), Mapping):
        return None, False

    content = read_content(given.get("name", "text"), given.get("args", {}))
    return content, content is not None


def _value(key: str, text: str, content: RegionContent | None, typed: ValueReader) -> object:
    if (found := typed(key, text)) is not None:
        return found[0]

    return text if content is None else content.read(text, typed)
