"""Tests of `PagedRadixTree`, against sequences that are kept apart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import final

import pytest

from aiomlc import BadRequestError, PagedRadixTree

NO_CAPACITY_USED = PagedRadixTree().free_capacity()


@final
class PlainSequences:
    """The same as the tree, without sharing."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = {}

    def match(self, tokens: Sequence[int]) -> tuple[int, set[int]]:
        lengths = {
            seq_id: next(
                (
                    i
                    for i, pair in enumerate(zip(stored, tokens, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(stored), len(tokens)),
            )
            for seq_id, stored in self.tokens.items()
        }
        longest = max(lengths.values(), default=0)
        return longest, {
            i for i, length in lengths.items() if length == longest
        } if longest else set()

    def num_prefixes(self) -> int:
        """The nodes of a trie with a token each, which is what the tree stores."""
        return len(
            {tuple(stored[: i + 1]) for stored in self.tokens.values() for i in range(len(stored))}
        )


def change(rng: random.Random, tree: PagedRadixTree, plain: PlainSequences, seq_id: int) -> None:
    """Make one random change of both; `seq_id` is new."""
    tokens = plain.tokens
    operation = rng.choice(["add", "extend", "extend", "fork", "rollback", "remove"])
    if operation == "add" or not tokens:
        tree.add(seq_id)
        tokens[seq_id] = []
        return

    chosen = rng.choice(list(tokens))
    number = rng.randint(0, len(tokens[chosen]))
    if operation == "extend":
        new = some_tokens(rng)
        tree.extend(chosen, new)
        tokens[chosen] += new
    elif operation == "fork":
        tree.fork(seq_id, chosen, number)
        tokens[seq_id] = tokens[chosen][:number]
    elif operation == "rollback":
        tree.rollback(chosen, number)
        del tokens[chosen][len(tokens[chosen]) - number :]
    else:
        tree.remove(chosen)
        del tokens[chosen]


def some_tokens(rng: random.Random) -> list[int]:
    return rng.choices(range(3), k=rng.randrange(6))


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_equals_sequences_that_are_kept_apart(seed: int) -> None:
    rng = random.Random(seed)
    tree, plain = PagedRadixTree(), PlainSequences()
    for seq_id in range(60):
        change(rng, tree, plain, seq_id)

        assert {i: list(tree.get(i)) for i in plain.tokens} == plain.tokens
        assert {i: tree.get_length(i) for i in plain.tokens} == {
            i: len(stored) for i, stored in plain.tokens.items()
        }
        assert NO_CAPACITY_USED - tree.free_capacity() == plain.num_prefixes()
        prompt = some_tokens(rng)
        length, seq_ids = tree.match(prompt)
        assert (length, set(seq_ids)) == plain.match(prompt)
        assert len(seq_ids) == len(set(seq_ids))

    for seq_id in plain.tokens:
        tree.remove(seq_id)
    assert tree.free_capacity() == NO_CAPACITY_USED


def test_impossible_changes_are_rejected_and_change_nothing() -> None:
    tree = PagedRadixTree()
    tree.add(0)
    tree.extend(0, [1, 2, 3])

    for impossible, param in (
        (lambda: tree.add(0), "seq_id"),
        (lambda: tree.remove(1), "seq_id"),
        (lambda: tree.extend(1, [1]), "seq_id"),
        (lambda: tree.fork(0, 0, 1), "seq_id"),
        (lambda: tree.fork(1, 0, 4), "forked_offset"),
        (lambda: tree.rollback(0, 4), "num_tokens"),
        (lambda: tree.extend(0, [4] * NO_CAPACITY_USED), "tokens"),
        (lambda: tree.match([1.5]), "tokens"),  # type: ignore[list-item]
    ):
        with pytest.raises(BadRequestError) as caught:
            impossible()
        assert caught.value.param == param

    assert tree.get(0) == (1, 2, 3)
    assert tree.free_capacity() == NO_CAPACITY_USED - 3
