"""Sampling parameters typed by the user."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc.cli.chat.sampling_settings import (
    check_parameters,
    describe_parameters,
    effective_value,
    parse_parameters,
)
from aiomlc.cli.terminal.failures import CommandError
from aiomlc.errors import BadRequestError
from aiomlc.sampling_params import PARAMETERS, SamplingParams


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("temperature 0", {"temperature": 0}),
        ("temperature   0.5", {"temperature": 0.5}),
        ("temperature=0.5; top_p = 0.8;seed=23;", {"temperature": 0.5, "top_p": 0.8, "seed": 23}),
        ("ignore_eos True", {"ignore_eos": True}),
        ("max_tokens default", {"max_tokens": None}),
    ],
)
def test_parameters_are_parsed(text: str, expected: dict[str, Any]) -> None:
    assert parse_parameters(text) == expected


@pytest.mark.parametrize(
    "text", ["temperature nan", "temperature 1e999", "seed 1.5", "top_p=2", "min_p {}"]
)
def test_an_invalid_value_is_named(text: str) -> None:
    with pytest.raises(BadRequestError, match=text.split("=")[0].split()[0]):
        parse_parameters(text)


@pytest.mark.parametrize("text", ["=", "= 3", "heat 3", "temperature", "temperature=", "seed 1;x"])
def test_another_form_is_rejected(text: str) -> None:
    with pytest.raises(CommandError):
        parse_parameters(text)


def test_every_parameter_is_described_with_a_value_that_can_be_typed() -> None:
    defaults = SamplingParams(top_p=0.9)
    lines = describe_parameters({"temperature": 0.5, "ignore_eos": True}, defaults).splitlines()

    assert [line.split()[0] for line in lines] == list(PARAMETERS)
    for line in lines:
        name, value, *_ = line.split()
        typed = parse_parameters(f"{name} {value}")[name]
        assert effective_value(name, typed, SamplingParams())[0] == value


def test_ranges_are_described() -> None:
    text = describe_parameters({}, SamplingParams())

    assert "top_p                1.0       default  number >= 0 and <= 1\n" in text
    assert "repetition_penalty   1.0       default  number > 0\n" in text
    assert "ignore_eos           false     default  true or false\n" in text


def test_options_of_the_command_line_are_checked() -> None:
    check_parameters({"temperature": 0.5, "seed": 7})
    with pytest.raises(BadRequestError, match="temperature: should be non-negative, got -1"):
        check_parameters({"temperature": -1})
