"""Attention by distance: the buckets of MPNet, the slopes of ALiBi, the positions of DeBERTa."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from aiomlc.models.config.encoder import Alibi, PositionBuckets, RelativePositions
from aiomlc.models.graph.position_bias import bucket_of_distances, relative_positions

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


DEBERTA = RelativePositions(
    count=256, max_distance=512, has_norm=True, has_projections=False, has_table=False
)


def test_near_keys_have_their_own_relative_position_and_distant_ones_share_one() -> None:
    positions = relative_positions(DEBERTA, 600)
    before = positions[599:]  # Keys before the query.

    assert before[:130].tolist() == [*range(256, 256 + 129), 385]
    assert set(before[:512]) == set(range(256, 512))
    assert set(before[511:]) == {511}
    after = positions[598::-1]
    np.testing.assert_array_equal(after[:511], 512 - before[1:512])
    assert set(after[511:]) == {0}


def test_without_buckets_each_distance_has_its_relative_position() -> None:
    positions = relative_positions(replace(DEBERTA, count=3, max_distance=0), 6)

    assert positions.tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5]


@pytest.mark.parametrize("max_distance", [0, 130, 512, 777])
@pytest.mark.parametrize("count", [16, 256])
def test_relative_positions_are_those_of_transformers(count: int, max_distance: int) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    import torch
    from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

    config = replace(DEBERTA, count=count, max_distance=max_distance)
    rows = torch.empty(800, 1)
    buckets = count if max_distance else -1
    (table,) = build_relative_position(rows, rows, buckets, max_distance)
    expected = torch.clamp(table + count, 0, 2 * count - 1).numpy()

    actual = relative_positions(config, 800)
    for query in (0, 400, 799):
        np.testing.assert_array_equal(actual[799 + query - np.arange(800)], expected[query])


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
