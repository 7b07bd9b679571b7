"""Foreign JSON read field by field; every error names the file and the field."""

from __future__ import annotations

__all__ = ("Fields", "read_json")

import json
from collections.abc import Mapping
from pathlib import Path
from typing import final

from aiomlc.errors import ModelLoadError


def read_json(path: Path) -> Fields:
    """Read a file that holds one JSON object.

    Raises:
        ModelLoadError: the file cannot be read, or holds something else.
    """
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}", path=path) from error
    except ValueError as error:
        raise ModelLoadError(f"{path} is not JSON: {error}", path=path) from error

    if not isinstance(values, dict):
        raise ModelLoadError(f"{path} holds no JSON object", path=path)

    return Fields(values, path)


@final
class Fields:
    """The fields of one JSON object. A field that is null counts as absent."""

    def __init__(self, values: Mapping[str, object], path: Path, prefix: str = "") -> None:
        self.path = path
        self._values = values
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def error(self, name: str, problem: str) -> ModelLoadError:
        """The error that says what is wrong with one field."""
        field = self._prefix + name
        return ModelLoadError(
            f'{self.path}: field "{field}" {problem}', path=self.path, field=field
        )

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """An integer of at least `minimum`; required when there is no default."""
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"is {value!r}, not an integer")

        if value < minimum:
            raise self.error(name, f"is {value}, below {minimum}")

        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number above zero; required when there is no default."""
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"is {value!r}, not a number")

        if not 0 < value < float("inf"):
            raise self.error(name, f"is {value}, not a positive number")

        return float(value)

    def optional_number(self, name: str, default: float) -> float:
        """A number above zero, 0 where it is null, and the default where it is not there."""
        if name in self._values and self._values[name] is None:
            return 0.0

        return self.number(name, default)

    def boolean(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._required(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"is {value!r}, not true or false")

        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string; required when there is no default."""
        value = self._required(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"is {value!r}, not a string")

        return value

    def texts(self, name: str) -> list[str]:
        """A list of strings; required."""
        value = self._required(name, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(name, f"is {value!r}, not a list of strings")

        return value

    def numbers(self, name: str) -> list[float]:
        """A list of numbers above zero; required."""
        values = self._required(name, None)
        if not isinstance(values, list) or not all(_is_positive(value) for value in values):
            raise self.error(name, f"is {values!r}, not a list of positive numbers")

        return [float(value) for value in values]

    def integers(self, name: str) -> list[int]:
        """A list of integers; required."""
        value = self._required(name, None)
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self.error(name, f"is {value!r}, not a list of integers")

        return value

    def nested(self, name: str) -> Fields:
        """A JSON object inside this one; empty when it is absent."""
        value = self._required(name, {})
        if not isinstance(value, dict):
            raise self.error(name, f"is {value!r}, not an object")

        return Fields(value, self.path, f"{self._prefix}{name}.")

    def flattened(self, name: str) -> Fields:
        """These fields and those of the object `name`; where both have one, these win."""
        inner = self.nested(name)
        return Fields({**inner._values, **self._without_null(), name: None}, self.path)

    def chosen(self, name: str, inner: str) -> Fields:
        """The same with the object `inner` of the object `name` in the place of that."""
        values = self.nested(name).nested(inner)._values
        return Fields({**self._values, name: values}, self.path, self._prefix)

    def without(self, name: str) -> Fields:
        """The same without a field."""
        return Fields({**self._values, name: None}, self.path, self._prefix)

    def filled(self, **defaults: object) -> Fields:
        """The same with defaults for fields that are not there; a null is there."""
        return Fields({**defaults, **self._values}, self.path, self._prefix)

    def _without_null(self) -> dict[str, object]:
        return {name: value for name, value in self._values.items() if value is not None}

    def _required(self, name: str, default: object) -> object:
        value = self._values.get(name)
        if value is None:
            value = default
        if value is None:
            raise self.error(name, "is missing")

        return value


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False

    return 0 < value < float("inf")
