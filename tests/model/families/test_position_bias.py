"""Biases of attention by distance: the buckets of MPNet, and the slopes of ALiBi."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from aiomlc.models.config.encoder import Alibi, PositionBuckets
from aiomlc.models.graph.position_bias import bucket_of_distances

MPNET = PositionBuckets(num_buckets=32, max_distance=128)
# Keys after the query: near ones have their own bucket, and 8, 11, 16, 23, ... begin the next ones.
AFTER = [0, *range(17, 24), 24, 24, 24, 24, 25, 25, 25, 25, 26]


def test_near_keys_have_their_own_buckets_and_distant_ones_share_one() -> None:
    buckets = bucket_of_distances(MPNET, 600)
    after, before = buckets[599:], buckets[599::-1]

    assert after[:17].tolist() == AFTER
    assert before[:17].tolist() == [0, *(bucket - 16 for bucket in AFTER[1:])]
    assert set(after[128:]) == {31}
    assert set(before[128:]) == {15}


def test_buckets_are_those_of_transformers() -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    import torch
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distances = torch.arange(-599, 600)
    expected = MPNetEncoder.relative_position_bucket(distances)

    np.testing.assert_array_equal(bucket_of_distances(MPNET, 600), expected.numpy())


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (1, [8]),
        (4, [2, 4, 6, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_are_those_of_the_paper(heads: int, exponents: list[float]) -> None:
    assert Alibi.of_heads(heads).slopes == pytest.approx([2**-power for power in exponents])
