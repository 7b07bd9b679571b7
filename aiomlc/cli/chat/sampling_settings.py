"""Sampling parameters typed by the user, validated by the table of `aiomlc.sampling_params`."""

from __future__ import annotations

__all__ = (
    "SET",
    "check_parameters",
    "complete_parameter",
    "describe_parameters",
    "effective_value",
    "parse_parameters",
)

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aiomlc.cli.terminal.failures import CommandError
from aiomlc.sampling_params import PARAMETERS, SamplingParams
from aiomlc.validation.error_messages import describe_error
from aiomlc.validation.parameter import Flag, Integer, Number
from aiomlc.validation.records import validate_fields
from aiomlc.validation.suggestions import suggest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SET = "set"  #: The source of a value that the user has set.
_MODEL = "model"
_DEFAULT = "default"


def parse_parameters(text: str) -> dict[str, Any]:
    """Return the parameters in `NAME VALUE` or `NAME=VALUE;NAME=VALUE`, the form of MLC LLM.

    The value None, typed as `default`, selects the model's default.

    Raises:
        CommandError: If the text has another form, or a name is unknown.
        BadRequestError: If a value is invalid.
    """
    values = dict(_split(text))
    check_parameters(values)
    return values


def check_parameters(values: Mapping[str, Any]) -> None:
    """Require parameters of the table with valid values.

    Raises:
        BadRequestError: If a value is invalid; `param` names it.
    """
    validate_fields(SamplingParams(**values), _describe)


def describe_parameters(values: Mapping[str, Any], defaults: SamplingParams) -> str:
    """Return a table of all parameters: name, value, its source and the range.

    Args:
        values: What the user has set.
        defaults: The sampling parameters of the model's files.
    """
    lines = []
    for name, parameter in PARAMETERS.items():
        value, source = effective_value(name, values.get(name), defaults)
        lines.append(f"{name:<20} {value:<9} {source:<8} {_describe_range(parameter)}".rstrip())

    return "\n".join(lines)


def complete_parameter(prefix: str) -> list[str]:
    """Return the names of the parameters that begin with a prefix."""
    return [name for name in PARAMETERS if name.startswith(prefix)]


def effective_value(name: str, value: Any, defaults: SamplingParams) -> tuple[str, str]:  # noqa: ANN401 - JSON.
    """Return the value that requests have, as `parse_parameters` reads it, and its source.

    Args:
        name: The parameter.
        value: What the user has set; None for nothing.
        defaults: The sampling parameters of the model's files.
    """
    sources = {
        SET: value,
        _MODEL: getattr(defaults, name),
        _DEFAULT: getattr(PARAMETERS[name], "default", None),
    }
    for source, candidate in sources.items():
        if candidate is not None:
            return json.dumps(candidate), source

    return _DEFAULT, _DEFAULT


def _split(text: str) -> Iterator[tuple[str, Any]]:
    for assignment in filter(None, (part.strip() for part in text.split(";"))):
        name, sign, value = assignment.partition("=")
        if not sign:
            name, _, value = assignment.partition(" ")
        name, value = name.strip(), value.strip()
        if name not in PARAMETERS:
            hint = suggest(name, PARAMETERS) or "; /set lists them all"
            raise CommandError(f"unknown parameter {name!r}{hint}")

        if not value:
            raise CommandError(f"{name}: the value is missing; type /set {name} VALUE")

        yield name, _parse_value(value)


def _parse_value(text: str) -> Any:  # noqa: ANN401 - JSON.
    if text == _DEFAULT:
        return None

    try:
        return json.loads(text.lower())
    except ValueError:
        return text


def _describe(name: str, error: ErrorDetails) -> str:
    return f"{name}: {describe_error(error)}"


def _describe_range(parameter: Number | Integer | Flag) -> str:
    if isinstance(parameter, Flag):
        return "true or false"

    kind = "integer" if isinstance(parameter, Integer) else "number"
    bounds = {">=": parameter.ge, ">": getattr(parameter, "gt", None), "<=": parameter.le}
    limits = [f"{sign} {bound}" for sign, bound in bounds.items() if bound is not None]
    return " ".join([kind, " and ".join(limits)]).rstrip()
