"""Typed access to the metadata of a GGUF file; every error names the file and the key."""

from __future__ import annotations

__all__ = ("Metadata",)

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar, final

from aiomlc.cache.files import stamp_of
from aiomlc.errors import ModelLoadError
from aiomlc.gguf.container import GGUFFile, gguf_error
from aiomlc.gguf.values import GGUFValue, decode_value
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import open_file

_Kind = TypeVar("_Kind", int, float, str)

_KINDS = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
_PLURALS = {int: "integers", float: "numbers", str: "strings"}


@final
class Metadata:
    """The metadata of a GGUF file. Long values are read from the file when they are needed."""

    def __init__(self, file: GGUFFile) -> None:
        self.path: Path = file.path
        self._file = file

    def __contains__(self, key: str) -> bool:
        return key in self._file.values

    def keys(self) -> Iterable[str]:
        """Return all keys."""
        return self._file.values.keys()

    def error(self, key: str, problem: str) -> ModelLoadError:
        """Return the error `PATH: KEY PROBLEM`."""
        return gguf_error(self.path, key, problem)

    def data(self, key: str) -> bytes:
        """Return a value as it is encoded; empty if the key is absent.

        Raises:
            ModelLoadError: If the file has been modified since it was opened.
        """
        raw = self._file.values.get(key)
        if raw is None or raw.data is not None:
            return b"" if raw is None else raw.data or b""

        with open_file(self.path) as file:
            file.seek(raw.offset)
            data = file.read(raw.nbytes)
            if stamp_of(os.fstat(file.fileno())) != self._file.stamp or len(data) != raw.nbytes:
                raise ModelLoadError(f"{self.path}: changed while it was read", path=self.path)

            return data

    def value(self, key: str) -> GGUFValue | None:
        """Return a value of any type; None if the key is absent.

        Raises:
            ModelLoadError: If the value is invalid.
        """
        raw = self._file.values.get(key)
        if raw is None:
            return None

        try:
            return decode_value(raw.kind, self.data(key))
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def string(self, key: str, default: str | None = None) -> str:
        """Return a string; required if there is no default."""
        value = self._required(key, default)
        if not isinstance(value, str):
            raise self._mismatch(key, _KINDS[str], value)

        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an integer; required if there is no default."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._mismatch(key, _KINDS[int], value)

        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number; required if there is no default."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._mismatch(key, _KINDS[float], value)

        if not math.isfinite(value):
            raise self._mismatch(key, "a finite number", value)

        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """Return a boolean."""
        value = self._required(key, default)
        if not isinstance(value, bool):
            raise self._mismatch(key, _KINDS[bool], value)

        return value

    def strings(self, key: str) -> list[str]:
        """Return a list of strings; empty if the key is absent."""
        return [self._element(key, value, str) for value in self._array(key)]

    def integers(self, key: str) -> list[int]:
        """Return a list of integers; empty if the key is absent."""
        return [self._element(key, value, int) for value in self._array(key)]

    def numbers(self, key: str) -> list[float]:
        """Return a list of numbers; empty if the key is absent."""
        return [
            float(value) if type(value) is int else self._element(key, value, float)
            for value in self._array(key)
        ]

    def uniform_integer(
        self, key: str, default: int | None = None, *, ignored: int | None = None
    ) -> int:
        """Return an integer that may also be given as an array with one for each layer.

        Layers with the number `ignored` may differ.

        Raises:
            ModelLoadError: If it is missing, or differs between layers.
        """
        values = self.value(key)
        if values is None or isinstance(values, int | float | str):
            return self.integer(key, default)

        different = sorted(set(self.integers(key)) - {ignored})
        if len(different) != 1:
            problem = f"must be the same in all layers, got {safe_repr(different)}"
            raise self.error(key, problem)

        return different[0]

    def _required(self, key: str, default: GGUFValue | None) -> GGUFValue:
        value = self.value(key)
        if value is None:
            value = default
        if value is None:
            raise self.error(key, "is missing")

        return value

    def _array(self, key: str) -> Iterable[GGUFValue]:
        value = self.value(key)
        if value is None:
            return ()

        if not isinstance(value, list):
            raise self._mismatch(key, "an array", value)

        return value

    def _element(self, key: str, value: GGUFValue, kind: type[_Kind]) -> _Kind:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._mismatch(key, f"an array of {_PLURALS[kind]}", value)

        return value

    def _mismatch(self, key: str, expected: str, value: object) -> ModelLoadError:
        return self.error(key, f"must be {expected}, got {safe_repr(value)}")
