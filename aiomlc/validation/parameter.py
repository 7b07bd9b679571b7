"""The range of a parameter, as metadata of a field's annotation.

Pydantic is imported by the first validation.
"""

from __future__ import annotations

__all__ = ("OUT_OF_RANGE", "Choice", "Doc", "Flag", "Integer", "Number", "to_int")

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from typing import Any, get_args

OUT_OF_RANGE = "out_of_range"  #: Our pydantic error type for a number with two bounds.
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number; its bounds, and the value that stands for None."""

    default: float | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None

    def schema(self) -> Any:  # noqa: ANN401 - pydantic's, which is imported here.
        """Return pydantic's schema of the number itself."""
        from pydantic_core import core_schema

        if self.ge is not None and self.le is not None:
            check = _within(self.ge, self.le)
            number = core_schema.float_schema(strict=True, allow_inf_nan=False)
            return core_schema.no_info_after_validator_function(check, number)

        return core_schema.float_schema(
            strict=True, allow_inf_nan=False, **_bounds(ge=self.ge, gt=self.gt, le=self.le)
        )

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:  # noqa: ANN401
        return _nullable(source, self.schema())


@dataclass(frozen=True, slots=True)
class Integer:
    """A 64-bit integer; its bounds, and the value that stands for None."""

    default: int | None = None
    ge: int | None = None
    le: int | None = None
    off: int | None = None  #: Another value that means the default, as other servers have it.

    def schema(self) -> Any:  # noqa: ANN401 - as Number's.
        """Return pydantic's schema of the integer itself."""
        from pydantic_core import core_schema

        if self.ge is not None and self.le is not None:
            check = _within(self.ge, self.le)
            integer: Any = core_schema.no_info_after_validator_function(
                check, core_schema.int_schema(strict=True)
            )
        else:
            lowest = -_INT64 if self.ge is None else self.ge
            integer = core_schema.int_schema(strict=True, ge=lowest, lt=_INT64)

        return core_schema.no_info_before_validator_function(self._prepare, integer)

    def _prepare(self, value: object) -> object:
        value = to_int(value)
        return self.default if type(value) is int and value == self.off else value

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:  # noqa: ANN401
        return _nullable(source, self.schema())


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean, and the value that stands for None."""

    default: bool = False

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:  # noqa: ANN401
        from pydantic_core import core_schema

        return _nullable(source, core_schema.bool_schema(strict=True))


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several strings, which also come from files, so that their type is `str`."""

    values: tuple[str, ...]
    described: str | None = None  #: The words for them in messages; None lists them.

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:  # noqa: ANN401
        from pydantic_core import core_schema

        schema: Any = core_schema.literal_schema(list(self.values))
        if self.described is not None:
            context = {"expected": self.described}
            schema = core_schema.custom_error_schema(
                schema, "literal_error", custom_error_context=context
            )

        return _nullable(source, schema)


@dataclass(frozen=True, slots=True)
class Doc:
    """One sentence about a parameter, for signatures and `help()`."""

    text: str


def to_int(value: object) -> object:
    """Return an integer of another library, such as NumPy's, as an `int`."""
    if type(value) is not int and isinstance(value, Integral) and not isinstance(value, bool):
        with suppress(Exception):  # Of an object that lies; pydantic says that it is no integer.
            return int(value)

    return value


def _nullable(annotated: object, schema: Any) -> Any:  # noqa: ANN401
    """Return the schema of a field, which allows None if the annotation does."""
    from pydantic_core import core_schema

    return core_schema.nullable_schema(schema) if type(None) in get_args(annotated) else schema


def _bounds(**bounds: float | None) -> dict[str, Any]:
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _within(low: float, high: float) -> Callable[[Any], Any]:
    """Return a check of two bounds, whose error message contains both."""

    def check(number: Any) -> Any:  # noqa: ANN401 - a number of either type.
        from pydantic_core import PydanticCustomError

        if low <= number <= high:
            return number

        raise PydanticCustomError(
            OUT_OF_RANGE, "should be in range [{low}, {high}]", {"low": low, "high": high}
        )

    return check
