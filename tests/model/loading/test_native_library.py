"""A compiled library that is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.native.encoder import NativeEncoder
from aiomlc.runtime.native.model import NativeModel

SHAPE = dict.fromkeys(
    ("vocab_size", "context_window", "max_batch_size", "prefill_chunk_size", "max_total_tokens"), 1
)


@pytest.mark.parametrize("content", [b"", b"no bytecode" * 100])
@pytest.mark.parametrize(
    "open_one",
    [lambda path: NativeModel(path, [], SHAPE, 1), lambda path: NativeEncoder(path, [], 1)],
    ids=["model", "encoder"],
)
def test_a_library_that_is_damaged_is_named(
    open_one: Callable[[Path], object], content: bytes, tmp_path: Path
) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(content)

    with pytest.raises(ModelLoadError, match=str(library)) as caught:
        open_one(library)

    assert caught.value.path == library
