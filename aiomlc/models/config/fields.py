"""Typed access to the fields of a JSON config; every error names the file and the field."""

from __future__ import annotations

__all__ = ("Fields", "quote", "read_json")

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

from aiomlc.errors import ModelLoadError


def read_json(path: Path) -> Fields:
    """Read a file that contains one JSON object.

    Raises:
        ModelLoadError: If the file cannot be read or does not contain a JSON object.
    """
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot read: {error.strerror}", path=path) from error
    except ValueError as error:
        raise ModelLoadError(f"{path}: invalid JSON: {error}", path=path) from error

    if not isinstance(values, dict):
        raise ModelLoadError(f"{path}: must contain a JSON object", path=path)

    return Fields(values, path)


def quote(value: object) -> str:
    """Return a config value in JSON notation, for a message."""
    return json.dumps(value, ensure_ascii=False)


@final
class Fields:
    """The fields of one JSON object. A null field counts as absent unless noted otherwise."""

    def __init__(self, values: Mapping[str, object], path: Path, prefix: str = "") -> None:
        self.path = path
        self._values = values
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def error(self, name: str, problem: str) -> ModelLoadError:
        """Return the error `PATH: field "NAME" PROBLEM`."""
        field = self._prefix + name
        return ModelLoadError(
            f'{self.path}: field "{field}" {problem}', path=self.path, field=field
        )

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return an integer of at least `minimum`; required if there is no default."""
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._mismatch(name, "an integer", value)

        if value < minimum:
            raise self.error(name, f"must be >= {minimum}, got {value}")

        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a positive number; required if there is no default."""
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._mismatch(name, "a number", value)

        if not 0 < value < float("inf"):
            raise self._mismatch(name, "a positive number", value)

        return float(value)

    def optional_number(self, name: str, default: float) -> float:
        """Return a positive number, 0 if the field is null, or the default if it is absent."""
        if name in self._values and self._values[name] is None:
            return 0.0

        return self.number(name, default)

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
        value = self._required(name, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._mismatch(name, "a list of strings", value)

        return value

    def numbers(self, name: str) -> list[float]:
        """Return a list of positive numbers; required."""
        values = self._required(name, None)
        if not isinstance(values, list) or not all(_is_positive(value) for value in values):
            raise self._mismatch(name, "a list of positive numbers", values)

        return [float(value) for value in values]

    def integers(self, name: str) -> list[int]:
        """Return a list of integers; required."""
        value = self._required(name, None)
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self._mismatch(name, "a list of integers", value)

        return value

    def nested(self, name: str) -> Fields:
        """Return the fields of a JSON object inside this one; empty if it is absent."""
        value = self._required(name, {})
        if not isinstance(value, dict):
            raise self._mismatch(name, "an object", value)

        return Fields(value, self.path, f"{self._prefix}{name}.")

    def flattened(self, name: str) -> Fields:
        """Return these fields merged with those of the object `name`; these take precedence."""
        inner = self.nested(name)
        return Fields({**inner._values, **self._without_null(), name: None}, self.path)

    def narrowed(self, name: str, member: str) -> Fields:
        """Return the fields with the object `name` replaced by its object `member`."""
        values = self.nested(name).nested(member)._values
        return Fields({**self._values, name: values}, self.path, self._prefix)

    def without(self, name: str) -> Fields:
        """Return the fields without the field `name`."""
        return Fields({**self._values, name: None}, self.path, self._prefix)

    def with_defaults(self, **defaults: object) -> Fields:
        """Return the fields with defaults for absent fields; a null field stays null."""
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

    def _mismatch(self, name: str, expected: str, value: object) -> ModelLoadError:
        return self.error(name, f"must be {expected}, got {quote(value)}")


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False

    return 0 < value < float("inf")
