"""Typed access to the fields of a JSON config; every error names the file and the field."""

from __future__ import annotations

__all__ = ("Fields", "quote", "refuse_quantized")

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from aiomlc.errors import ModelLoadError
from aiomlc.models.config.limits import INTEGERS, MAX_LIST_LENGTH, NUMBERS
from aiomlc.validation.json_values import short_repr

_MAX_QUOTED = 200  # characters


def quote(value: object) -> str:
    """Return a config value in JSON notation, for a message; a long one is shortened."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    text = short_repr(value) if is_integer else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."


@final
class Fields:
    """The fields of one JSON object. A null field counts as absent unless noted otherwise.

    Every number must be in the range that `limits` has for its field.

    Args:
        values: The object.
        path: The file that contains it.
        prefix: What the names of its fields begin with in messages.
        names: What the file calls its fields, where that differs.
        tensors: The files of those of the names that are names of tensors.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        path: Path,
        prefix: str = "",
        names: Mapping[str, str] | None = None,
        tensors: Mapping[str, Path] | None = None,
    ) -> None:
        self.path = path
        self._values = values
        self._prefix = prefix
        self._names = names or {}
        self._tensors = tensors or {}

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def error(self, name: str, problem: str) -> ModelLoadError:
        """Return the error `PATH: field "NAME" PROBLEM`."""
        field = self._prefix + name
        field = self._names.get(field, field)
        path = self._tensors.get(field, self.path)
        tensor = field if field in self._tensors else None
        return ModelLoadError(
            f'{path}: field "{field}" {problem}', path=path, tensor=tensor, field=field
        )

    def integer(self, name: str, default: int | None = None, *, minimum: int | None = None) -> int:
        """Return an integer; required if there is no default.

        Args:
            name: The field.
            default: The value if the field is absent.
            minimum: A lower bound above that of the table.
        """
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._mismatch(name, "an integer", value)

        low, high = INTEGERS[name]
        self._check_range(name, value, low if minimum is None else minimum, high)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a positive number; required if there is no default."""
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._mismatch(name, "a number", value)

        if not _is_positive(value):
            raise self._mismatch(name, "a positive number", value)

        self._check_range(name, value, *NUMBERS[name])
        return float(value)

    def optional_number(self, name: str, default: float) -> float:
        """Return a positive number, 0 if the field is null, or the default if it is absent."""
        if name in self._values and self._values[name] is None:
            return 0.0

        return self.number(name, default)

    def is_zero(self, name: str) -> bool:
        """Return whether a field is the number 0."""
        value = self._values.get(name)
        return not isinstance(value, bool) and value == 0

    def boolean(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self._required(name, default)
        if not isinstance(value, bool):
            raise self._mismatch(name, "true or false", value)

        return value

    def require_false(self, name: str) -> None:
        """Raise if a boolean field, false by default, is true."""
        if self.boolean(name, False):
            raise self._mismatch(name, "false", True)

    def string(self, name: str, default: str | None = None) -> str:
        """Return a string; required if there is no default."""
        value = self._required(name, default)
        if not isinstance(value, str):
            raise self._mismatch(name, "a string", value)

        return value

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        """Return a string that is among `allowed`; required if there is no default."""
        value = self.string(name, default)
        if value not in allowed:
            choices = ", ".join(map(quote, allowed))
            expected = choices if len(allowed) == 1 else f"one of {choices}"
            raise self._mismatch(name, expected, value)

        return value

    def strings(self, name: str) -> list[str]:
        """Return a list of strings; required."""
        values = self._list(name, "a list of strings")
        if not all(isinstance(item, str) for item in values):
            raise self._mismatch(name, "a list of strings", values)

        return values

    def numbers(self, name: str) -> list[float]:
        """Return a list of positive numbers; required."""
        values = self._list(name, "a list of positive numbers")
        if not all(map(_is_positive, values)):
            raise self._mismatch(name, "a list of positive numbers", values)

        for value in values:
            self._check_range(name, value, *NUMBERS[name])
        return [float(value) for value in values]

    def integers(self, name: str) -> list[int]:
        """Return a list of integers; required."""
        values = self._list(name, "a list of integers")
        if not all(type(item) is int for item in values):
            raise self._mismatch(name, "a list of integers", values)

        return values

    def fractions(self, name: str) -> list[float]:
        """Return a list of numbers from 0 to below 1; required."""
        values = self._list(name, "a list of numbers >= 0 and < 1")
        for value in values:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 <= value < 1:
                raise self._mismatch(name, "a list of numbers >= 0 and < 1", values)

        return [float(value) for value in values]

    def value(self, name: str) -> object:
        """Return a field as it is, for fields that are given on."""
        return self._values.get(name)

    def is_list(self, name: str) -> bool:
        """Return whether a field is a list."""
        return isinstance(self._values.get(name), list)

    def nested(self, name: str) -> Fields:
        """Return the fields of a JSON object inside this one; empty if it is absent."""
        value = self._required(name, {})
        if not isinstance(value, dict):
            raise self._mismatch(name, "an object", value)

        return self._derived(value, f"{self._prefix}{name}.")

    def names(self) -> list[str]:
        """Return the names of the fields that are not null."""
        return list(self._without_null())

    def flattened(self, name: str) -> Fields:
        """Return these fields merged with those of the object `name`; these take precedence."""
        inner = self.nested(name)
        return self._derived({**inner._values, **self._without_null(), name: None})

    def narrowed(self, name: str, member: str) -> Fields:
        """Return the fields with the object `name` replaced by its object `member`."""
        values = self.nested(name).nested(member)._values
        return self._derived({**self._values, name: values}, self._prefix)

    def without(self, name: str) -> Fields:
        """Return the fields without the field `name`."""
        return self._derived({**self._values, name: None}, self._prefix)

    def replaced(self, **values: object) -> Fields:
        """Return the fields with other values of some of them."""
        return self._derived({**self._values, **values}, self._prefix)

    def renamed(self, names: Mapping[str, str]) -> Fields:
        """Return the fields under other names, by name in the file, which messages still have."""
        values = {new: self._values[old] for old, new in names.items() if old in self}
        file_names = {new: old for old, new in names.items() if old in self}
        return Fields(
            {**self._values, **values},
            self.path,
            self._prefix,
            {**self._names, **file_names},
            self._tensors,
        )

    def with_defaults(self, **defaults: object) -> Fields:
        """Return the fields with defaults for absent fields; a null field stays null."""
        return self._derived({**defaults, **self._values}, self._prefix)

    def _derived(self, values: Mapping[str, object], prefix: str = "") -> Fields:
        return Fields(values, self.path, prefix, self._names, self._tensors)

    def _without_null(self) -> dict[str, object]:
        return {name: value for name, value in self._values.items() if value is not None}

    def _required(self, name: str, default: object) -> object:
        value = self._values.get(name)
        if value is None:
            value = default
        if value is None:
            raise self.error(name, "is missing")

        return value

    def _list(self, name: str, expected: str) -> list[Any]:
        values = self._required(name, None)
        if not isinstance(values, list):
            raise self._mismatch(name, expected, values)

        if len(values) > MAX_LIST_LENGTH:
            problem = f"must have at most {MAX_LIST_LENGTH} entries, got {len(values)}"
            raise self.error(name, problem)

        return values

    def _check_range(self, name: str, value: float, low: float, high: float) -> None:
        if value < low:
            raise self.error(name, f"must be >= {_bound(low)}, got {quote(value)}")

        if value > high:
            raise self.error(name, f"must be <= {_bound(high)}, got {quote(value)}")

    def _mismatch(self, name: str, expected: str, value: object) -> ModelLoadError:
        return self.error(name, f"must be {expected}, got {quote(value)}")


def refuse_quantized(fields: Fields) -> None:
    """Raise for a config whose weights are stored quantized."""
    name = "quantization_config"
    if name in fields:
        method = fields.nested(name).string("quant_method", "an unknown method")
        raise fields.error(
            name,
            f"must be absent: already quantized weights ({method[:40]}) are not supported; pass "
            "the model that they were made from, which is quantized when it is opened",
        )


def _bound(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False

    return 0 < value < float("inf")
