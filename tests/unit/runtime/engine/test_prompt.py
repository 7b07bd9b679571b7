import hashlib
from unittest.mock import Mock

import numpy as np
import pytest

from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.pinned_prefix import PinnedPrefix
from aiomlc.runtime.engine.prefix_piece import KVFormat
from aiomlc.runtime.engine.prefix_transfer import PrefixTransfers
from aiomlc.runtime.engine.prompt import Prompt, PromptPiece
from aiomlc.testing import FakeCore

_FORMAT = KVFormat(
    kv_dtype="float16",
    num_layers=1,
    num_key_value_heads=1,
    row_size=8,
    quantization="q4f16_1",
    weights="weights",
    library="library",
)


def image(begin: int, num_positions: int) -> PromptPiece:
    rows = np.ones((num_positions, 4), np.float32)
    return PromptPiece(begin, hashlib.sha256(rows.tobytes()).digest(), rows)


def test_token_ids_are_contiguous_int32() -> None:
    prompt = Prompt([3, -1, 2**31 - 1], [image(1, 1)])

    assert prompt.token_ids.tobytes() == np.array([3, -1, 2**31 - 1], np.int32).tobytes()
    assert len(prompt) == 3
    assert repr(prompt) == "<Prompt 3 tokens, 1 embedded pieces>"


@pytest.mark.parametrize("token_id", [2**31, -(2**31) - 1, 10**30])
def test_a_token_id_that_does_not_fit_is_refused(token_id: int) -> None:
    with pytest.raises(BadRequestError, match="prompt: a token id does not fit 32 bits"):
        Prompt([1, token_id])


async def test_a_prefix_with_embedded_pieces_is_not_transferred() -> None:
    store = Mock()
    transfers = PrefixTransfers(store, _FORMAT)
    prompt = Prompt([1, 0, 0], [image(1, 2)])

    with pytest.raises(BadRequestError, match="embedded pieces cannot be transferred, got 1"):
        await transfers.count_cached(prompt)

    with pytest.raises(BadRequestError, match="embedded pieces cannot be transferred, got 1"):
        transfers.export(prompt, 0, PinnedPrefix(FakeCore(), 1, 3))

    assert not store.mock_calls
