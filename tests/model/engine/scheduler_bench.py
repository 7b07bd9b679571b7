"""The model of the scheduler tests, and the outputs of sequences that run alone."""

from __future__ import annotations

__all__ = (
    "CHUNK_SIZE",
    "MAX_ROWS",
    "MAX_SEQUENCE_TOKENS",
    "TOTAL_PAGES",
    "UNLIMITED",
    "ModelBench",
    "SoloRunner",
    "open_bench",
)

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from aiomlc.config import EngineConfig
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.loading.open_decoder import OpenedModel
from aiomlc.runtime.native.core import EngineOptions, NativeCore
from aiomlc.runtime.native.model import NativeModel
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.sampling_params import SequenceOptions
from benchmarks.native_model import open_native_model
from tests.model.engine.traced_sequence import CoreLimits

TOTAL_PAGES, MAX_ROWS, CHUNK_SIZE = 11, 6, 32
MAX_SEQUENCE_TOKENS = 112  # Seven pages, so that two long sequences never fit.
UNLIMITED = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelBench:
    """A model whose cores are tested, and a runner of sequences that run alone."""

    model: NativeModel
    vocabulary: Sequence[bytes]
    run_alone: Callable[[tuple[int, ...], SequenceOptions, int], tuple[int, ...]]

    def open_core(self, limits: CoreLimits) -> NativeCore:
        return _open_core(self.model, self.vocabulary, limits)


def _open_core(model: NativeModel, vocabulary: Sequence[bytes], limits: CoreLimits) -> NativeCore:
    options = EngineOptions(
        step_token_budget=limits.step_token_budget,
        max_recycling_sequences=limits.max_recycling,
        max_queue_size=limits.max_queue_size,
        separate_prefill=limits.separate_prefill,
        speculative_mode="prompt_lookup" if limits.has_drafts else "disable",
    )
    return NativeCore(model, vocabulary, options)


class SoloRunner:
    """Runner of sequences that are alone in a core; it caches their tokens."""

    def __init__(self, core: NativeCore) -> None:
        self._core = core
        self._cache: dict[tuple[tuple[int, ...], SequenceOptions], tuple[int, ...]] = {}

    def __call__(
        self, prompt: tuple[int, ...], options: SequenceOptions, count: int
    ) -> tuple[int, ...]:
        """Return the first `count` completion tokens of a prompt; no stop token ends them."""
        tokens = self._cache.get((prompt, options), ())
        if len(tokens) < count:
            tokens = self._compute(prompt, replace(options, max_tokens=count))
            self._cache[prompt, options] = tokens
        return tokens[:count]

    def _compute(self, prompt: tuple[int, ...], options: SequenceOptions) -> tuple[int, ...]:
        self._core.submit(Prompt(prompt), options)
        while self._core.step():
            pass
        (record,) = self._core.drain()
        assert record.finish_reason == "length"
        return record.token_ids


@contextmanager
def open_bench(directory: Path) -> Iterator[ModelBench]:
    """Open the model twice: for the tested cores, and for the sequences that run alone."""

    def open_model() -> OpenedModel:
        config = EngineConfig(
            quantization="q4f16_1",
            num_threads=1,
            max_num_sequence=MAX_ROWS,
            max_total_sequence_length=16 * (TOTAL_PAGES - 1),  # The cache adds one page.
            max_single_sequence_length=MAX_SEQUENCE_TOKENS,
            prefill_chunk_size=CHUNK_SIZE,
        )
        return open_native_model(directory, config)

    opened = open_model()
    assert opened.native.free_pages() == TOTAL_PAGES
    vocabulary = Tokenizer(directory / "tokenizer.json").token_bytes(opened.vocab_size)
    limits = CoreLimits(TOTAL_PAGES, MAX_ROWS, CHUNK_SIZE, 0, 0, False)
    core = _open_core(open_model().native, vocabulary, limits)
    try:
        yield ModelBench(opened.native, vocabulary, SoloRunner(core))
    finally:
        core.close()
        core.release()
