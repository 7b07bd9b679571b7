"""Damaged compiled libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tvm_ffi import core

from aiomlc.compiler import CompiledLibrary
from aiomlc.errors import ModelLoadError
from aiomlc.runtime.native.encoder import NativeEncoder
from aiomlc.runtime.native.library import load_native
from aiomlc.runtime.native.model import ModelShape, NativeModel

SHAPE = ModelShape(
    vocab_size=1,
    context_window=1,
    max_batch_size=1,
    prefill_chunk_size=1,
    max_total_tokens=1,
    num_layers=1,
    num_query_heads=1,
    num_kv_heads=1,
    kv_row_size=1,
    kv_dtype="float32",
)

UNKNOWN = -3  # In the place of a type's index.


@pytest.mark.parametrize("content", [b"", b"no bytecode" * 100])
@pytest.mark.parametrize(
    "open_native",
    [lambda library: NativeModel(library, [], SHAPE, 1), lambda lib: NativeEncoder(lib, [], 1)],
    ids=["model", "encoder"],
)
def test_error_names_a_damaged_library(
    open_native: Callable[[CompiledLibrary], object], content: bytes
) -> None:
    path = Path("a/model.vm")

    with pytest.raises(ModelLoadError, match=str(path)) as caught:
        open_native(CompiledLibrary(path, content, {}, "key"))

    assert caught.value.path == path


@pytest.mark.parametrize(
    "name",
    [
        *("EngineOptions", "SequenceOptions", "ModelShape", "Faults"),
        *("Statistics", "Histogram", "LastFinished"),
    ],
)
def test_the_types_of_the_fields_of_a_struct_are_known(name: str) -> None:
    """A type that is looked up in vain is the process's first error, which takes 300 ms."""
    load_native()
    info = core._lookup_or_register_type_info_from_type_key(f"aiomlc.{name}")

    types = {field.name: field.ty for field in info.fields if field.ty is not None}
    while types:
        assert {
            name for name, type_ in types.items() if type_.origin_type_index == UNKNOWN
        } == set()
        types = {
            f"{name}[{index}]": argument
            for name, type_ in types.items()
            for index, argument in enumerate(type_.args or ())
        }
