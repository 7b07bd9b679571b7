from __future__ import annotations

from typing import Any

import pytest

from aiomlc.ray.prefix import prefix_key, rank_replicas

SYSTEM = {"role": "system", "content": "Be brief."}
HELLO = {"role": "user", "content": "Hello"}
OTHER = {"role": "user", "content": "What is 2 plus 3?"}
TURN = [HELLO, {"role": "assistant", "content": "Hi!"}, OTHER]
KEYS = [f"key {number}" for number in range(200)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"messages": [SYSTEM, HELLO]}, {"messages": [SYSTEM, OTHER], "seed": 3}),
        ({"messages": [HELLO]}, {"messages": TURN}),
        ({"input": [SYSTEM, HELLO]}, {"input": [SYSTEM, OTHER]}),
        ({"input": "a", "instructions": "Be brief."}, {"input": "b", "instructions": "Be brief."}),
        ({"prompt": "a" * 256 + "b"}, {"prompt": "a" * 256 + "c"}),
        ({"prompt": [1] * 64 + [2]}, {"prompt": [1] * 64 + [3]}),
    ],
)
def test_prompts_that_begin_alike_have_one_key(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert prefix_key(first) is not None
    assert prefix_key(first) == prefix_key(second)


def test_other_beginnings_have_other_keys() -> None:
    bodies: list[dict[str, Any]] = [
        {"messages": [HELLO]},
        {"messages": [OTHER]},
        {"messages": [SYSTEM, HELLO]},
        {"messages": [SYSTEM, HELLO], "tools": [{"type": "function"}]},
        {"messages": [SYSTEM, HELLO], "model": "other"},
        {"prompt": "Hello"},
        {"prompt": [1, 2]},
        {"input": "a"},
    ]
    assert len({prefix_key(body) for body in bodies}) == len(bodies)


@pytest.mark.parametrize(
    "body", [{}, {"messages": []}, {"messages": 3}, {"messages": "a", "prompt": 1}, {"prompt": ""}]
)
def test_a_body_without_a_prompt_has_no_key(body: dict[str, Any]) -> None:
    assert prefix_key(body) is None


def test_a_replica_that_goes_moves_its_own_keys_only() -> None:
    three = {key: rank_replicas(key, dict.fromkeys("abc", 0), max_imbalance=0) for key in KEYS}
    two = {key: rank_replicas(key, dict.fromkeys("ab", 0), max_imbalance=0) for key in KEYS}

    assert {groups[0][0] for groups in three.values()} == set("abc")
    for key in KEYS:
        assert two[key] == [group for group in three[key] if group != ["c"]]


def test_a_replica_that_is_too_busy_comes_last() -> None:
    home = rank_replicas("key", {"a": 0, "b": 0}, max_imbalance=4)
    (first,), (second,) = home

    assert rank_replicas("key", {first: 5, second: 1}, max_imbalance=4) == home
    assert rank_replicas("key", {first: 6, second: 1}, max_imbalance=4) == [[second], [first]]


def test_without_a_key_any_replica_is_as_good() -> None:
    assert rank_replicas(None, {"a": 9, "b": 0}, max_imbalance=1) == [["a", "b"]]
    assert rank_replicas("key", {}, max_imbalance=1) == [[]]
