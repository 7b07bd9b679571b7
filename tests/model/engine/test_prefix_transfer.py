"""Prefixes that move between engines: the bits of one engine, the errors, and no lost page."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from anyio import CancelScope, create_task_group, move_on_after
from anyio.lowlevel import checkpoint

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineClosedError,
    EngineConfig,
    EngineDeadError,
    EngineOverloadedError,
    MLCEngine,
    PrefixNotCachedError,
    PrefixTransferError,
)
from aiomlc.config import KVCacheType
from aiomlc.testing import Faults, faulty_loader
from tests.model.conftest import OpenTiny
from tests.model.tiny_models import FORKED_ANYWHERE

Directory = Callable[[str], Path]

# Not of layers with unequal heads.
TRANSFERRED = [name for name in FORKED_ANYWHERE if not name.startswith("gemma4")]
TOKENS = [(7 * i * i + 3 * i) % 256 for i in range(80)]
CONFIG = EngineConfig(
    quantization="q0f32",
    num_threads=2,
    prefill_chunk_size=32,
    max_num_sequence=4,
    max_total_sequence_length=1024,
)


# The caches are in float32, float16, int8 and int4.
@pytest.mark.parametrize(
    ("architecture", "quantization", "kv_cache_dtype"),
    [
        *(
            (architecture, *formats)
            for architecture in TRANSFERRED
            for formats in (("q0f32", "auto"), ("q4f16_1", "auto"), ("q4f16_1", "int8"))
        ),
        *((architecture, "q4f16_1", "int4") for architecture in ("qwen3", "gpt_oss")),
    ],
)
@pytest.mark.sampled(12)
def test_imported_tokens_are_bit_identical_to_computed_ones(
    open_tiny: OpenTiny, architecture: str, quantization: str, kv_cache_dtype: KVCacheType
) -> None:
    model = open_tiny(architecture, quantization, kv_cache_dtype)
    free = model.free_pages()
    model.add_sequence(0)
    model.forward([(0, TOKENS[:50])])
    rows = model.export_tokens(0, 0, 50)

    for cuts in ([0, 50], [0, 1, 15, 16, 33, 50], [0, 48]):
        model.add_sequence(1)
        for start, stop in itertools.pairwise(cuts):
            model.import_tokens(1, model.export_tokens(0, start, stop))
        assert model.export_tokens(1, 0, cuts[-1]) == model.export_tokens(0, 0, cuts[-1])
        rest = model.forward([(1, TOKENS[cuts[-1] : 50])]) if cuts[-1] < 50 else None
        assert rest is None or model.export_tokens(1, 0, 50) == rows
        actual = model.forward([(1, TOKENS[50:])])
        model.remove_sequence(1)
        model.fork_sequence(0, 2, 50)
        expected = model.forward([(2, TOKENS[50:])])
        model.remove_sequence(2)
        np.testing.assert_array_equal(actual, expected)
    model.remove_sequence(0)

    assert model.free_pages() == free


async def complete(engine: AsyncMLCEngine, prompt: list[int]) -> tuple[Any, ...]:
    answer = await engine.completions.create(
        prompt=prompt, max_tokens=8, temperature=0, logprobs=3, ignore_eos=True
    )
    assert answer.usage is not None
    choice = answer.choices[0]
    return choice.text, choice.logprobs, answer.usage.prompt_tokens_details.cached_tokens


def tiny(directory: Directory, config: EngineConfig = CONFIG) -> AsyncMLCEngine:
    return AsyncMLCEngine(directory("llama"), engine_config=config)


async def pieces_of(engine: AsyncMLCEngine, prompt: list[int], start: int = 0) -> list[bytes]:
    with await engine.export_prefix(prompt=prompt, start=start) as pieces:
        return [piece async for piece in pieces]


async def test_a_second_engine_continues_a_prompt_of_the_first(tiny_directory: Directory) -> None:
    prompt = (TOKENS * 5)[:390]  # Several chunks of 32, and a partial page.
    async with tiny(tiny_directory) as first, tiny(tiny_directory) as second:
        text, logprobs, _ = await complete(first, prompt)
        counts = [await second.import_prefix(piece) for piece in await pieces_of(first, prompt)]

        assert counts[-1] == len(prompt)
        assert await second.count_cached_tokens(prompt=prompt) == len(prompt)
        assert await complete(second, prompt) == (text, logprobs, len(prompt) - 1)
        assert second.statistics().prefill_tokens == 1
        statistics = second.statistics()
        assert statistics.free_pages == statistics.total_pages
        assert await first.count_cached_tokens(prompt=prompt) == len(prompt)
        assert first.statistics().num_pinned == 0


async def test_only_the_missing_part_is_sent(tiny_directory: Directory) -> None:
    async with tiny(tiny_directory) as first, tiny(tiny_directory) as second:
        await complete(second, TOKENS[:40])
        whole = await pieces_of(first, TOKENS)
        part = await pieces_of(first, TOKENS, start=32)
        for piece in part:
            await second.import_prefix(memoryview(bytearray(piece)))

        assert sum(map(len, part)) < sum(map(len, whole))
        assert await second.count_cached_tokens(prompt=TOKENS) == len(TOKENS)


def test_blocking_engines_transfer_prefixes(tiny_directory: Directory) -> None:
    engines = [MLCEngine(tiny_directory("llama"), engine_config=CONFIG) for _ in range(2)]
    with engines[0] as first, engines[1] as second:
        with first.export_prefix(prompt=TOKENS) as pieces:
            assert pieces.num_tokens == len(TOKENS)
            counts = [second.import_prefix(piece) for piece in pieces]

        assert counts[-1] == second.count_cached_tokens(prompt=TOKENS) == len(TOKENS)


def resealed(piece: bytes, **changes: object) -> bytes:
    """Return a piece with other values in its header, and the digest that fits them."""
    magic, version, size = struct.unpack_from("<8sII", piece)
    header = json.loads(piece[16 : 16 + size]) | changes
    text = json.dumps(header).encode()
    body = struct.pack("<8sII", magic, version, len(text)) + text + piece[16 + size : -32]
    return body + sha256(body).digest()


async def test_a_piece_that_does_not_fit_is_refused_by_name(tiny_directory: Directory) -> None:
    async with tiny(tiny_directory) as engine:
        (piece,) = await pieces_of(engine, TOKENS)
        await engine.reset()
        damaged: list[tuple[str, bytes]] = [
            ("size", b""),
            ("size", piece[:47]),
            ("magic", b"x" + piece[1:]),
            ("version", piece[:8] + b"\2" + piece[9:]),
            ("digest", piece[:-1]),
            ("digest", piece + b"\0"),
            ("kv_dtype", resealed(piece, kv_dtype="float16")),
            ("num_layers", resealed(piece, num_layers=99)),
            ("num_key_value_heads", resealed(piece, num_key_value_heads="2")),
            ("row_size", resealed(piece, row_size=None)),
            ("quantization", resealed(piece, quantization="q0f16")),
            ("weights", resealed(piece, weights="0" * 32)),
            ("library", resealed(piece, library="")),
            ("num_tokens", resealed(piece, num_tokens=2**40)),
            ("num_tokens", resealed(piece, num_tokens=True)),
            ("start", resealed(piece, start=-1)),
            ("start", resealed(piece, start=len(TOKENS))),
            ("size", resealed(piece, start=16)),
        ]
        damaged += [
            ("digest", piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :])
            for at in range(12, len(piece), 997)
        ]
        for field, data in damaged:
            with pytest.raises(PrefixTransferError) as caught:
                await engine.import_prefix(data)
            assert caught.value.field == field

        assert await engine.count_cached_tokens(prompt=TOKENS) == 0
        every_second = memoryview(bytes(byte for byte in piece for _ in range(2)))[::2]
        assert await engine.import_prefix(every_second) == len(TOKENS)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("kv_dtype", ["float32", "float16", "bfloat16", "int8", "int4"])
async def test_rows_that_are_not_finite_are_refused(
    tiny_directory: Directory, kv_dtype: KVCacheType
) -> None:
    config = EngineConfig(quantization="q0f32", num_threads=2, kv_cache_dtype=kv_dtype)
    width = 2 if kv_dtype in ("float16", "bfloat16") else 4
    random = Random(1)
    async with AsyncMLCEngine(tiny_directory("qwen3"), engine_config=config) as engine:
        (piece,) = await pieces_of(engine, TOKENS)
        await engine.reset()
        head = 16 + int.from_bytes(piece[12:16], "little") + 4 * len(TOKENS)
        layout = json.loads(piece[16 : head - 4 * len(TOKENS)])
        stride = layout["row_size"] if kv_dtype in ("int8", "int4") else width
        num_rows = (len(piece) - head - 32) // stride
        for value in (float("nan"), float("inf"), -float("inf")):
            data = struct.pack("<e" if kv_dtype == "float16" else "<f", value)[-width:]
            at = head + stride * (random.randrange(num_rows) + 1) - width
            forged = piece[:at] + data + piece[at + width : -32]
            with pytest.raises(PrefixTransferError, match="must be finite") as caught:
                await engine.import_prefix(forged + sha256(forged).digest())
            assert caught.value.field == "rows"

        assert await engine.count_cached_tokens(prompt=TOKENS) == 0
        assert await engine.import_prefix(piece) == len(TOKENS)


async def test_engines_with_other_settings_refuse_each_other(tiny_directory: Directory) -> None:
    other = EngineConfig(quantization="q0f32", num_threads=2, kv_cache_dtype="int8")
    async with tiny(tiny_directory) as first, tiny(tiny_directory, other) as second:
        for source, target in ((first, second), (second, first)):
            (piece,) = await pieces_of(source, TOKENS)
            with pytest.raises(PrefixTransferError, match="kv_dtype must be"):
                await target.import_prefix(piece)


async def test_a_lost_or_misplaced_piece_is_reported(tiny_directory: Directory) -> None:
    async with tiny(tiny_directory) as engine:
        (late,) = await pieces_of(engine, TOKENS, start=32)
        with await engine.export_prefix(prompt=TOKENS) as pieces:
            await engine.reset()
            with pytest.raises(PrefixNotCachedError, match="only 0 of the first 80 tokens"):
                await pieces.receive()

        with pytest.raises(PrefixNotCachedError, match="only 0 of the first 32 tokens"):
            await engine.import_prefix(late)


async def test_arguments_are_checked(tiny_directory: Directory) -> None:
    async with tiny(tiny_directory) as engine:
        for start in (-16, 8, 80, 96, True, 16.0):
            with pytest.raises(BadRequestError, match="start: must be a multiple of 16"):
                await engine.export_prefix(prompt=TOKENS, start=start)  # type: ignore[arg-type]
        with pytest.raises(BadRequestError, match="piece: must be bytes"):
            await engine.import_prefix("text")  # type: ignore[arg-type]
        with pytest.raises(BadRequestError, match="either messages or a prompt"):
            await engine.export_prefix()
        (piece,) = await pieces_of(engine, TOKENS)
        assert await engine.count_cached_tokens(prompt=TOKENS) == len(TOKENS)
        assert engine.statistics().num_pinned == 0

    with pytest.raises(EngineClosedError):
        await engine.import_prefix(piece)

    off = EngineConfig(quantization="q0f32", num_threads=2, prefix_cache_mode="disable")
    async with tiny(tiny_directory, off) as engine:
        with pytest.raises(BadRequestError, match="prefix cache is disabled"):
            await engine.import_prefix(piece)
    async with AsyncMLCEngine(model_lib="mock://echo") as echo:
        with pytest.raises(BadRequestError, match="cannot be transferred"):
            await echo.export_prefix(prompt=TOKENS)


async def test_a_full_cache_refuses_an_import(tiny_directory: Directory) -> None:
    small = EngineConfig(
        quantization="q0f32", num_threads=2, max_num_sequence=2, max_total_sequence_length=96
    )
    async with tiny(tiny_directory) as first, tiny(tiny_directory, small) as second:
        (piece,) = await pieces_of(first, TOKENS[::-1])
        pinned = await second.pin_prefix(prompt=TOKENS[:40])
        with pinned, pytest.raises(EngineOverloadedError, match="no room for a prefix of 80"):
            await second.import_prefix(piece)
        assert await second.import_prefix(piece) == len(TOKENS)


async def test_cancelled_transfers_leave_no_pages(tiny_directory: Directory) -> None:
    prompt = (TOKENS * 5)[:300]
    async with tiny(tiny_directory) as first, tiny(tiny_directory) as second:
        pieces = await pieces_of(first, prompt)
        for turns in range(6):
            with CancelScope() as scope:
                async with create_task_group() as tasks:
                    tasks.start_soon(pieces_of, first, [turns, *prompt])
                    tasks.start_soon(second.import_prefix, pieces[0])
                    for _ in range(turns):
                        await checkpoint()
                    scope.cancel()
        with move_on_after(0):
            await second.import_prefix(pieces[0])

        for engine in (first, second):
            await engine.reset()
            await complete(engine, [1, 2, 3])
            statistics = engine.statistics()
            assert statistics.num_pinned == statistics.num_running == 0
            assert statistics.free_pages == statistics.total_pages


async def test_an_import_that_fails_ends_the_engine(tiny_directory: Directory) -> None:
    loader = faulty_loader(None, Faults(fail_at_import=1))
    async with AsyncMLCEngine(
        tiny_directory("llama"), engine_config=CONFIG, loader=loader
    ) as engine:
        (piece,) = await pieces_of(engine, TOKENS)
        await engine.reload()
        with pytest.raises(EngineDeadError, match="injected fault at import 1"):
            await engine.import_prefix(piece)
        with pytest.raises(EngineDeadError, match="injected fault at import 1"):
            await complete(engine, TOKENS)
        await engine.reload()
        assert await engine.import_prefix(piece) == len(TOKENS)


@pytest.mark.parametrize("architecture", ["gemma4_text", "qwen3_5_text"])
async def test_models_without_equal_rows_in_all_layers_export_nothing(
    model_cache: Path, tiny_directory: Directory, architecture: str
) -> None:
    async with AsyncMLCEngine(tiny_directory(architecture), engine_config=CONFIG) as engine:
        with pytest.raises(BadRequestError, match="with equal heads"):
            await engine.export_prefix(prompt=TOKENS)
