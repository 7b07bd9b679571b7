"""Commands whose options are the fields of records."""

from __future__ import annotations

__all__ = ("takes_options",)

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import wraps
from typing import Any, get_type_hints


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer with an option for each field of its records.

    The keyword arguments of `command` whose types are dataclasses are built from options: their
    fields have typer's annotations. The other parameters are unchanged.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters
    records = {name: hints[name] for name in parameters if hasattr(hints[name], _MARK)}
    options: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        if name in records:
            options += _parameters(records[name])
        else:
            options.append(parameter.replace(annotation=hints[name]))

    @wraps(command)
    def run(**values: Any) -> None:  # noqa: ANN401 - typer's.
        built = {
            name: record(**{field.name: values.pop(field.name) for field in fields(record)})
            for name, record in records.items()
        }
        command(**values, **built)

    vars(run)["__signature__"] = inspect.Signature(options)
    run.__annotations__ = {option.name: option.annotation for option in options}
    del vars(run)["__wrapped__"]  # Whose annotations typer would read.
    return run


_MARK = "__dataclass_fields__"


def _parameters(record: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass.
    hints = get_type_hints(record, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=hints[field.name],
        )
        for field in fields(record)
    ]


def _default(field: Field[Any]) -> Any:  # noqa: ANN401
    return inspect.Parameter.empty if field.default is MISSING else field.default
