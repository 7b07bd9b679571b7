"""Checks of filters, operators and methods whose results could be large, before they run."""

from __future__ import annotations

__all__ = ("FILTERS", "FilterCheck", "check_format", "check_method", "check_operator")

import re
from collections.abc import Callable, Iterable, Mapping
from string import whitespace
from types import BuiltinFunctionType
from typing import Any

from jinja2.exceptions import SecurityError

from aiomlc.runtime.templates.render_budget import RenderBudget, RenderBudgetError

# ruff: noqa: ANN401 - the values of a template have any type.

_MAX_DIGITS = 100  # Of rounding.
_MAX_SPLIT = 200_000  # Characters of a string that a filter splits into words.
# A width or precision of five digits or more, or one that is an argument.
_WIDE_FORMAT = re.compile(r"\d{5,}(?:\.\d*)?[a-zA-Z%]|%[#0\- +\d.]*\*")
_WIDTH = re.compile(r"\d+")

FilterCheck = Callable[..., None]


def check_operator(budget: RenderBudget, operator: str, left: Any, right: Any) -> None:
    """Require that the result of an operator is small."""
    match operator:
        case "*":
            _check_product(budget, left, right)
        case "**":
            _check_power(budget, left, right)
        case "%" if isinstance(left, str):
            check_format(budget, left, right)
        case "+" if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            budget.check_items(len(left) + len(right))
            budget.check_tree(left)
            budget.check_tree(right)
        case _:
            pass


def _check_product(budget: RenderBudget, left: Any, right: Any) -> None:
    for value, factor in ((left, right), (right, left)):
        if not isinstance(factor, int) or factor <= 0:
            continue

        if isinstance(value, str):
            budget.grow(len(value) * factor)
        elif isinstance(value, (list, tuple)):
            budget.check_items(len(value) * factor)
            budget.grow(budget.check_tree(value) * factor)


def _check_power(budget: RenderBudget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        budget.check_integer_bits(left.bit_length() * max(0, right))


def check_format(budget: RenderBudget, text: str, args: Any) -> None:
    """Require that the result of `text % args` is small."""
    if _WIDE_FORMAT.search(text):
        raise RenderBudgetError("formats a value with a width of more than 9999")

    conversions = text.count("%")
    padding = max(map(int, _WIDTH.findall(text)), default=0) if conversions else 0
    values = budget.check_tree(args)
    # A name in the format can be written any number of times, an argument once.
    times = conversions if isinstance(args, Mapping) else 1
    budget.grow(len(text) + conversions * min(padding, 9999) + values * times)


def _check_format_filter(budget: RenderBudget, text: Any, /, *args: Any, **values: Any) -> None:
    check_format(budget, str(text), values or args)


def _check_indent(budget: RenderBudget, text: Any, /, width: Any = 4, *_: Any, **__: Any) -> None:
    budget.check_width(width)
    size = len(width) if isinstance(width, str) else int(width)
    if isinstance(text, str):
        budget.grow(len(text) + (text.count("\n") + 1) * max(0, size))


def _check_json(budget: RenderBudget, value: Any, /, *args: Any, **options: Any) -> None:
    separator = budget.check_tree(args) + budget.check_tree(options) if args or options else 0
    for width in (*args, *options.values()):
        budget.check_width(width)
        separator += width if isinstance(width, int) else 0

    if separator:
        depth, nodes = _shape(value)
        budget.grow(budget.check_tree(value) + nodes * depth * separator)


def _shape(value: Any) -> tuple[int, int]:
    """Return the nesting and the number of the values in a JSON value."""
    depth, nodes, level = 0, 0, [value]
    while level:
        nodes += len(level)
        depth += 1
        level = [child for each in level for child in _json_children(each)]

    return depth, nodes


def _json_children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()

    return value if isinstance(value, (list, tuple)) else ()


def _check_replace(
    budget: RenderBudget, text: Any, old: Any = "", new: Any = "", /, *_: Any, **__: Any
) -> None:
    text, old, new = str(text), str(old), str(new)
    budget.grow(len(text) + text.count(old) * max(0, len(new) - len(old)))


def _check_join(
    budget: RenderBudget, values: Any, separator: Any = "", /, *_: Any, **options: Any
) -> None:
    separator = options.get("d", separator)
    if isinstance(values, (list, tuple, dict, str)):
        budget.grow(budget.check_tree(values) + len(values) * len(str(separator)))


def _check_width(
    budget: RenderBudget, value: Any, count: Any = 0, /, fill: Any = None, *_: Any, **options: Any
) -> None:
    for width in (count, *options.values()):
        budget.check_width(width)

    if isinstance(count, int):
        for filler in (fill, *options.values()):
            budget.grow(budget.check_tree(filler) * max(0, count))

    _check_list(budget, value)


def _check_precision(budget: RenderBudget, _value: Any, /, *args: Any, **options: Any) -> None:
    for precision in (*args, *options.values()):
        if isinstance(precision, (int, float)) and not -_MAX_DIGITS <= precision <= _MAX_DIGITS:
            raise RenderBudgetError(f"rounds to more than {_MAX_DIGITS} digits")

    budget.spend()


def _check_sum(
    budget: RenderBudget, values: Any, _attribute: Any = None, start: Any = 0, /, **options: Any
) -> None:
    if not isinstance(options.get("start", start), (int, float)):
        raise RenderBudgetError("adds up values that are not numbers")

    budget.check_tree(values)


def _check_tree(budget: RenderBudget, value: Any, /, *_: Any, **__: Any) -> None:
    budget.check_tree(value)


def _check_text(budget: RenderBudget, value: Any, /, *_: Any, **__: Any) -> None:
    if isinstance(value, str):
        budget.grow(len(value))
    else:
        budget.check_tree(value)


def _check_words(budget: RenderBudget, value: Any, /, *_: Any, **__: Any) -> None:
    if len(str(value)) > _MAX_SPLIT:
        raise RenderBudgetError(f"splits a string of more than {_MAX_SPLIT} characters")


def _check_list(budget: RenderBudget, value: Any, /, *_: Any, **__: Any) -> None:
    if isinstance(value, (str, range)):
        budget.check_items(len(value))
    else:
        budget.check_tree(value)


#: The filters of templates, each with what is checked before it runs.
FILTERS: Mapping[str, FilterCheck | None] = {
    **dict.fromkeys(
        (
            *("abs", "attr", "count", "d", "default", "first", "float", "int", "items"),
            *("last", "length", "map", "reject", "rejectattr", "select", "selectattr"),
        )
    ),
    **dict.fromkeys(
        (
            *("capitalize", "e", "escape", "lower", "safe", "string", "trim", "truncate"),
            *("upper", "urlencode"),
        ),
        _check_text,
    ),
    **dict.fromkeys(("dictsort", "groupby", "max", "min", "sort", "unique"), _check_tree),
    **dict.fromkeys(("title", "wordcount"), _check_words),
    **dict.fromkeys(("batch", "slice"), _check_width),
    **dict.fromkeys(("list", "reverse"), _check_list),
    "format": _check_format_filter,
    "indent": _check_indent,
    "join": _check_join,
    "replace": _check_replace,
    "round": _check_precision,
    "sum": _check_sum,
    "tojson": _check_json,
}


def _check_padding(budget: RenderBudget, text: str, width: Any = 8, *_: Any, **values: Any) -> None:
    width = values.get("tabsize", width)
    budget.check_width(width)
    if isinstance(width, int):
        budget.grow(len(text) + (text.count("\t") + 1) * max(0, width))


def _check_split(budget: RenderBudget, text: str, sep: Any = None, maxsplit: Any = -1) -> None:
    separators = [sep] if isinstance(sep, str) and sep else whitespace
    number = sum(map(text.count, separators))
    if isinstance(maxsplit, int) and maxsplit >= 0:
        number = min(number, maxsplit)

    budget.grow(len(text))
    budget.check_items(1 + number)


def _check_split_lines(budget: RenderBudget, text: str, *_: Any, **__: Any) -> None:
    budget.grow(len(text))
    budget.check_items(1 + text.count("\n") + text.count("\r"))


def _check_joined(budget: RenderBudget, separator: str, values: Any = (), *_: Any) -> None:
    _check_join(budget, values, separator)


def _check_own_length(budget: RenderBudget, text: str, *_: Any, **__: Any) -> None:
    budget.grow(len(text))


_METHODS: Mapping[type, Mapping[str, FilterCheck | None]] = {
    str: {
        **dict.fromkeys(
            (
                *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum"),
                *("isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower"),
                *("isnumeric", "isprintable", "isspace", "istitle", "isupper", "lower"),
                *("lstrip", "partition", "removeprefix", "removesuffix", "rfind", "rindex"),
                *("rpartition", "rstrip", "startswith", "strip", "swapcase", "title", "upper"),
            ),
            _check_own_length,
        ),
        **dict.fromkeys(("center", "expandtabs", "ljust", "rjust", "zfill"), _check_padding),
        **dict.fromkeys(("rsplit", "split"), _check_split),
        "splitlines": _check_split_lines,
        "join": _check_joined,
        "replace": _check_replace,
    },
    list: dict.fromkeys(("copy", "count", "index"), _check_tree),
    tuple: dict.fromkeys(("count", "index"), _check_tree),
    dict: dict.fromkeys(("copy", "get", "items", "keys", "values")),
    int: {"bit_length": None},
    float: {"is_integer": None},
}


def check_method(
    budget: RenderBudget,
    method: BuiltinFunctionType,
    args: tuple[Any, ...],
    options: Mapping[str, Any],
) -> None:
    """Require that a method of a plain value is available, and that its result is small.

    Raises:
        SecurityError: If the method is not available.
        RenderBudgetError: If its result would be too large.
    """
    owner: Any = method.__self__
    kind = str if isinstance(owner, str) else type(owner)
    methods = _METHODS.get(kind, {})
    if method.__name__ not in methods:
        raise SecurityError(f"the method {method.__name__!r} is not available in chat templates")

    check = methods[method.__name__]
    if check is not None:
        check(budget, owner, *args, **options)
