"""The records and constants that Python and the native library share."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc.config import PAGE_SIZE
from aiomlc.models.parameters import packed_layout
from aiomlc.runtime.native import record_codec
from aiomlc.runtime.native.library import native_function
from aiomlc.runtime.native.records import native_record
from aiomlc.sampling_params import PARAMETERS


def test_constants_equal_the_native_ones() -> None:
    python = {
        "TILE_ROWS": packed_layout.TILE_ROWS,
        "GROUP_SIZE": packed_layout.GROUP_SIZE,
        "GROUP_TILE_BYTES": packed_layout.GROUP_TILE_BYTES,
        "PAGE_SIZE": PAGE_SIZE,
        "NUM_FINISH_REASONS": len(record_codec._FINISH_REASONS),
    }

    assert python == dict(native_function("aiomlc.constants")())


def test_defaults_equal_the_native_ones() -> None:
    record: Any = native_record("aiomlc.SequenceOptions", {})
    defaults = {name: parameter.default for name, parameter in PARAMETERS.items()}
    del defaults["ignore_eos"]  # It decides the stop tokens, and has no native field.

    assert {name: getattr(record, name) for name in defaults} == defaults


def test_a_field_that_is_none_keeps_its_default() -> None:
    record: Any = native_record("aiomlc.SequenceOptions", {"temperature": 0, "top_p": None})

    assert (record.temperature, record.top_p) == (0.0, 1.0)


def test_a_record_rejects_unknown_fields_and_wrong_types() -> None:
    with pytest.raises(AttributeError):
        native_record("aiomlc.SequenceOptions", {"top_n_sigma": 1.0})

    with pytest.raises(TypeError):
        native_record("aiomlc.SequenceOptions", {"temperature": "hot"})
