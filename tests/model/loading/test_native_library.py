"""Damaged compiled libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.native.encoder import NativeEncoder
from aiomlc.runtime.native.model import ModelShape, NativeModel

SHAPE = ModelShape(
    vocab_size=1, context_window=1, max_batch_size=1, prefill_chunk_size=1, max_total_tokens=1
)


@pytest.mark.parametrize("content", [b"", b"no bytecode" * 100])
@pytest.mark.parametrize(
    "open_native",
    [lambda path: NativeModel(path, [], SHAPE, 1), lambda path: NativeEncoder(path, [], 1)],
    ids=["model", "encoder"],
)
def test_error_names_a_damaged_library(
    open_native: Callable[[Path], object], content: bytes, tmp_path: Path
) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(content)

    with pytest.raises(ModelLoadError, match=str(library)) as caught:
        open_native(library)

    assert caught.value.path == library
