"""Every number of a config has a range, and no value of a field causes an untyped error."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aiomlc.models
from aiomlc import ModelLoadError
from aiomlc.models import MODEL_TYPES
from aiomlc.models.config.decoder_fields import ConfigRules
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.limits import INTEGERS, MAX_LIST_LENGTH, NUMBERS
from tests.model.tiny_encoder import ENCODER_CONFIG
from tests.model.tiny_models import TINY_CONFIGS

PATH = Path("config.json")
CONFIGS = {**TINY_CONFIGS, "bert": ENCODER_CONFIG}
WRONG: list[object] = [
    *(10**30, -(10**30), 2**31, 2**63, -1, 0, 1, 3, 10**6),
    *(1e-320, 1e308, math.inf, -math.inf, math.nan, 0.3),
    *(True, None, "", "x" * 1000, [], [1], [[]], {}, {"a": 1}),
    [1] * (MAX_LIST_LENGTH + 1),
]


def _names(methods: set[str]) -> Iterator[str]:
    """Yield the string constants that the parsers of configs pass to methods of `Fields`."""
    for path in Path(aiomlc.models.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue

            if node.func.attr in methods and node.args and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)


def _paths(config: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the location of every field of a config, nested ones too."""
    for name, value in config.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *inner) for inner in _paths(value))


def _changed(config: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    name, *rest = path
    return config | {name: _changed(config[name], tuple(rest), value) if rest else value}


def test_every_number_that_a_parser_reads_has_a_range() -> None:
    assert set(_names({"integer"})) <= set(INTEGERS)
    assert set(_names({"number", "optional_number", "numbers"})) <= set(NUMBERS)
    assert ConfigRules().norm_eps_field in NUMBERS
    assert all(low <= high for low, high in [*INTEGERS.values(), *NUMBERS.values()])
    assert all(low > 0 for low, _ in NUMBERS.values())


@pytest.mark.parametrize("name", CONFIGS)
def test_a_wrong_value_of_any_field_is_a_typed_error_or_harmless(name: str) -> None:
    parse = MODEL_TYPES[CONFIGS[name]["model_type"]]
    errors = []
    for location, value in itertools.product(_paths(CONFIGS[name]), WRONG):
        try:
            parse(Fields(_changed(CONFIGS[name], location, value), PATH))
        except ModelLoadError as error:
            errors.append(error)

    assert errors
    assert all(error.path == PATH and error.field for error in errors)
    assert max(len(str(error)) for error in errors) < 1000


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "field", ["num_hidden_layers", "vocab_size", "hidden_size", "num_attention_heads"]
)
def test_a_size_beyond_every_model_is_refused(name: str, field: str) -> None:
    fields = Fields(CONFIGS[name] | {field: 10**30}, PATH)

    with pytest.raises(ModelLoadError, match="must be <= ") as caught:
        MODEL_TYPES[CONFIGS[name]["model_type"]](fields)

    assert caught.value.field == field
