"""An extension of griffe, which reads the docstrings for mkdocstrings.

A `#:` comment, before an attribute or at its end, is its docstring. Names that a class hides from
`dir()` by the decorator `hides` are left out, and so are values that only the source explains.
"""

from __future__ import annotations

__all__ = ("PublicDocstrings",)

import ast
from pathlib import Path
from typing import Any

import griffe

_MARK = "#:"


class PublicDocstrings(griffe.Extension):
    """Adds docstrings from comments, and removes what classes hide."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:  # noqa: ANN401
        """Give an attribute without a docstring the text of its comment, and hide its value.

        That is, a value that a method assigns, or that describes a field to pydantic.
        """
        if attr.labels.isdisjoint({"class-attribute", "module-attribute"}) or (
            str(attr.value).startswith("Field(")
        ):
            attr.value = None

        if attr.docstring is not None or attr.lineno is None or attr.endlineno is None:
            return

        assert isinstance(attr.filepath, Path)  # Not a list, as that of a namespace package.
        lines = attr.lines_collection[attr.filepath]
        if text := _text(lines, attr.lineno - 1, attr.endlineno - 1):
            attr.docstring = griffe.Docstring(
                text, lineno=attr.lineno, endlineno=attr.endlineno, parent=attr
            )

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:  # noqa: ANN401 - griffe's.
        """Remove the members that `@hides(...)` names."""
        for decorator in cls.decorators:
            call = ast.parse(str(decorator.value), mode="eval").body
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "hides":
                for argument in call.args:
                    cls.members.pop(ast.literal_eval(argument), None)


def _text(lines: list[str], first: int, last: int) -> str:
    """Return the comment of the attribute in these lines, counted from 0; empty without one."""
    parts: list[str] = []
    while first > 0 and lines[first - 1].strip().startswith("#"):
        first -= 1
        parts.insert(0, lines[first].strip().removeprefix(_MARK).removeprefix("#").strip())

    if parts and not lines[first].strip().startswith(_MARK):
        parts = []  # A comment for readers of the source.

    for line in lines[first : last + 1]:
        if not line.strip().startswith("#") and _MARK in line:
            parts.append(line.partition(_MARK)[2].strip())

    return " ".join(parts)
