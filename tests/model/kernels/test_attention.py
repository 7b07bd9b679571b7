"""Attention over TVM's paged KV cache: accuracy, and equality however sequences are computed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.model.kernels.paged_cache import (
    Array,
    Cache,
    Tokens,
    attend_alone,
    chunks_of,
    oracle,
    random_tokens,
    same_bits,
)

caches = pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
# Size of the window, and number of attention sinks.
windows = pytest.mark.parametrize("window", [None, (1, 0), (7, 3), (16, 0), (30, 17), (100, 4)])


@windows
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # A key that differs in the last bit of a float may be rounded to the next integer; with int4,
    # queries and probabilities are rounded to bf16.
    [
        ("float16", 3e-3),
        ("float32", 5e-6),
        ("int8", 2e-2),
        ("int8 float32", 2e-2),
        ("int4", 6e-2),
        ("int4 float32", 6e-2),
    ],
)
def test_attention_matches_the_float64_oracle(
    dtype: str, tolerance: float, window: tuple[int, int] | None
) -> None:
    tokens = random_tokens(75)

    output = attend_alone(tokens, dtype, window)

    np.testing.assert_allclose(output, oracle(tokens, dtype, window), atol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "exact", "limit"),
    [
        ("int8", "float16", 0.01),
        ("int8 float32", "float32", 0.01),
        ("int4", "float16", 0.1),
        ("int4 float32", "float32", 0.1),
    ],
)
def test_a_cache_of_integers_has_a_small_error(dtype: str, exact: str, limit: float) -> None:
    tokens = random_tokens(300)

    difference = attend_alone(tokens, dtype).astype(np.float64) - oracle(tokens, exact)

    assert np.sqrt(np.mean(difference**2)) < limit
    assert np.abs(difference).max() < 10 * limit


@windows
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "int8", "int8 float32", "int4", "int4 float32"]
)
@pytest.mark.parametrize(
    "sizes",
    [(1,) * 75, (5, 14, 1, 1, 54), (16, 16, 16, 27), (15, 1, 1, 58), (74, 1), (1, 74), (40, 35)],
)
def test_chunked_prefill_does_not_change_a_bit(
    dtype: str, sizes: tuple[int, ...], window: tuple[int, int] | None
) -> None:
    tokens = random_tokens(75)
    cache = Cache(dtype, window=window)
    cache.add(0)

    outputs = [cache.step({0: chunk})[0] for chunk in chunks_of(tokens, sizes)]

    assert same_bits(np.concatenate(outputs), attend_alone(tokens, dtype, window))


@caches
@pytest.mark.parametrize("window", [None, (600, 5), (30, 0)])
def test_a_context_of_two_attention_chunks_does_not_change_a_bit(
    window: tuple[int, int] | None, dtype: str
) -> None:
    tokens = random_tokens(1020)
    expected = attend_alone(tokens, dtype, window)
    cache = Cache(dtype, window=window)
    cache.add(0)

    sizes = (505, 5, 1, 1, 1, 1, 20, 486)  # The kernel's chunks of the context have 512 positions.
    outputs = [cache.step({0: chunk})[0] for chunk in chunks_of(tokens, sizes)]
    cache.fork(0, 1, 1019)
    forked = cache.step({1: tokens[-1:]})[1]

    assert same_bits(np.concatenate(outputs), expected)
    assert same_bits(forked, expected[-1:])
    tolerance = 6e-2 if dtype == "int4" else 2e-2
    np.testing.assert_allclose(expected, oracle(tokens, dtype, window), atol=tolerance)


@caches
def test_other_sequences_in_the_batch_do_not_change_a_bit(dtype: str) -> None:
    sequences = {i: random_tokens(60, seed=i) for i in range(4)}
    cache = Cache(dtype)
    outputs: dict[int, list[Array]] = {i: [] for i in sequences}
    plan: list[dict[int, int]] = [
        {0: 20},
        {0: 1, 1: 33},
        {1: 1, 0: 1},
        {2: 5, 0: 1, 3: 17},
        {0: 1, 1: 1, 2: 1, 3: 1},
        {3: 1, 2: 16, 1: 1},
    ]
    positions = dict.fromkeys(sequences, 0)
    for i in sequences:
        cache.add(i)

    for lengths in plan:
        new = {i: sequences[i][positions[i] : positions[i] + n] for i, n in lengths.items()}
        for i, output in cache.step(new).items():
            outputs[i].append(output)
            positions[i] += lengths[i]

    for i, tokens in sequences.items():
        assert same_bits(np.concatenate(outputs[i]), attend_alone(tokens[: positions[i]], dtype))


@caches
@pytest.mark.parametrize("position", [1, 5, 16, 17, 32, 36, 37])
def test_a_fork_equals_an_independent_sequence(position: int, dtype: str) -> None:
    parent = random_tokens(37, seed=2)
    child = parent[:position]
    cache = Cache(dtype)
    cache.add(0)
    cache.step({0: parent})
    cache.fork(0, 1, position)

    for lengths in ({0: 1, 1: 1}, {0: 3, 1: 1}, {1: 20}, {0: 1, 1: 1}):
        new = {i: random_tokens(n, seed=10 * i + n) for i, n in lengths.items()}
        outputs = cache.step(new)
        for i, history in ((0, parent), (1, child)):
            if i not in new:
                continue
            history += new[i]
            assert same_bits(outputs[i], attend_alone(history, dtype)[-len(new[i]) :])


@caches
@pytest.mark.parametrize("shared", [64, 70, 333])
def test_many_forks_of_a_long_prefix_equal_independent_sequences(shared: int, dtype: str) -> None:
    prefix = random_tokens(shared, seed=3)
    cache = Cache(dtype)
    cache.add(0)
    cache.step({0: prefix})
    histories = {0: prefix.copy()}
    for child in range(1, 12):
        cache.fork(0, child)
        histories[child] = prefix.copy()

    for round_ in range(3):
        new = {i: random_tokens(1, seed=100 * round_ + i) for i in histories}
        outputs = cache.step(new)
        for i, output in outputs.items():
            histories[i] += new[i]
            assert same_bits(output, attend_alone(histories[i], dtype)[-1:])


@caches
def test_deeply_nested_forks_equal_independent_sequences(dtype: str) -> None:
    history = random_tokens(20, seed=4)
    cache = Cache(dtype)
    cache.add(0)
    cache.step({0: history})

    for child in range(1, 12):
        cache.fork(child - 1, child)
        new = random_tokens(11, seed=child)
        history += new

        output = cache.step({child: new})[child]

        assert same_bits(output, attend_alone(history, dtype)[-11:])
    one = random_tokens(1)
    assert same_bits(cache.step({11: one})[11], attend_alone(history + one, dtype)[-1:])


@caches
@pytest.mark.parametrize("count", [1, 4, 5, 20, 21, 36])
def test_popped_tokens_do_not_affect_later_steps(count: int, dtype: str) -> None:
    history = random_tokens(37, seed=5)
    cache = Cache(dtype)
    cache.add(0)
    cache.step({0: history})

    cache.pop(0, count)
    history = history[: len(history) - count]
    for size in (1, 30):
        new = random_tokens(size, seed=6)
        history += new
        assert same_bits(cache.step({0: new})[0], attend_alone(history, dtype)[-size:])


@caches
@pytest.mark.parametrize("seed", range(8))
def test_random_cache_operations_do_not_change_a_bit(seed: int, dtype: str) -> None:
    generator = np.random.default_rng(seed)
    window = None if seed < 4 else (int(generator.integers(1, 50)), int(generator.integers(0, 20)))
    cache = Cache(dtype, window=window)
    histories: dict[int, Tokens] = {}
    next_id = 0
    for _ in range(40):
        action = generator.choice(["add", "fork", "pop", "remove", "step", "decode"])
        parent = int(generator.choice(list(histories))) if histories else -1
        if parent == -1 or (action == "add" and len(histories) < 8):
            cache.add(next_id)
            histories[next_id] = []
            next_id += 1
        elif action == "fork" and len(histories) < 8 and histories[parent]:
            position = int(generator.integers(1, len(histories[parent]) + 1))
            cache.fork(parent, next_id, position)
            histories[next_id] = histories[parent][:position]
            next_id += 1
        elif action == "pop" and len(histories[parent]) > 1:
            count = int(generator.integers(1, len(histories[parent])))
            cache.pop(parent, count)
            del histories[parent][-count:]
        elif action == "remove":
            cache.remove(parent)
            del histories[parent]
        else:
            chosen = generator.permutation(list(histories))[: generator.integers(1, 9)]
            new = {
                int(i): random_tokens(
                    1 if action == "decode" else int(generator.integers(1, 40)),
                    seed=int(generator.integers(1 << 30)),
                )
                for i in chosen
            }
            for i, output in cache.step(new).items():
                histories[i] += new[i]
                assert same_bits(output, attend_alone(histories[i], dtype, window)[-len(new[i]) :])
