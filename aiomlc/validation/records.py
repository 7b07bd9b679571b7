"""Validation of dataclasses by the annotations of their fields, with pydantic."""

from __future__ import annotations

__all__ = ("names_similar_fields", "validate_fields")

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import InvalidValueError, to_plain
from aiomlc.validation.suggestions import suggest

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

T = TypeVar("T")


def validate_fields(record: Any, describe: Callable[[str, ErrorDetails], str]) -> None:  # noqa: ANN401
    """Validate the fields of a frozen dataclass, and replace them by pydantic's validated values.

    Args:
        describe: Returns the message for a field, such as `stop[1]`, and its error.

    Raises:
        BadRequestError: If a field is invalid; `param` names it.
    """
    from pydantic import ValidationError

    names = [field.name for field in fields(record)]
    try:
        valid = _model(record.__class__).model_validate(
            {name: _plain(name, getattr(record, name)) for name in names}
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, *steps = first["loc"]
        path = f"{name}{''.join(f'[{step}]' for step in steps if isinstance(step, int))}"
        raise BadRequestError(describe(path, first), param=str(name)) from None

    for name in names:
        object.__setattr__(record, name, getattr(valid, name))


def _plain(name: str, value: object) -> object:
    try:
        return to_plain(value)
    except InvalidValueError as error:
        raise BadRequestError(f"{name}{error.path} {error.reason}", param=name) from error.__cause__


@functools.cache
def _model(record_type: Any) -> type[BaseModel]:  # noqa: ANN401 - a class, which mypy cannot hash.
    """Return a model with the fields of a dataclass."""
    from pydantic import ConfigDict, create_model

    config = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False, protected_namespaces=())
    hints = get_type_hints(record_type, include_extras=True)
    required: dict[str, Any] = {
        field.name: (hints[field.name], ...) for field in fields(record_type)
    }
    return create_model(record_type.__name__, __config__=config, **required)


def names_similar_fields(synonyms: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """Decorate a dataclass: the error for an unknown field names a similar one."""
    return functools.partial(_check_names, synonyms)


def _check_names(synonyms: Mapping[str, str], record: type[T]) -> type[T]:
    initialize = record.__init__

    @functools.wraps(initialize)
    def initialize_checked(self: T, *args: Any, **values: Any) -> None:  # noqa: ANN401
        names = [field.name for field in fields(cast("Any", record))]
        for name in values:
            if name not in names:
                hint = suggest(name, names, synonyms=synonyms)
                raise TypeError(f"{record.__name__} has no field {name!r}{hint}")

        initialize(self, *args, **values)

    cast("Any", record).__init__ = initialize_checked
    return record
