"""What a model will take, from its files alone: nothing is allocated, compiled or converted."""

from __future__ import annotations

__all__ = ("InsufficientMemoryError", "MemoryPlan", "ModelMemory", "plan_memory", "plan_models")

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aiomlc.compiler.kv_cache import kv_cache_of
from aiomlc.compiler.parameters import pack_parameters
from aiomlc.compiler.quantization import fuses_feed_forward, quantization_named
from aiomlc.config import PAGE_SIZE, EngineConfig, KVCacheType, Mode
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.models import DecoderConfig, decoder_parameters, read_description
from aiomlc.models.parameters.packed_layout import MatrixFormat
from aiomlc.runtime.loading.capacity import ServingLimits, StepSizes, serving_limits, step_sizes
from aiomlc.runtime.loading.memory_budget import MemoryBudget, memory_budget
from aiomlc.runtime.loading.model_directory import ModelDirectory, choose_quantization, find_draft
from aiomlc.weights.plan import packed_file_bytes

_UNBOUNDED = 1 << 62
_SIZES = (
    "max_num_sequence",
    "max_total_sequence_length",
    "max_single_sequence_length",
    "prefill_chunk_size",
    "step_token_budget",
)


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What one model takes, by what it depends on."""

    name: str
    quantization: str
    context_window: int  #: Tokens of one sequence, as the model's files say.
    vocab_size: int
    weight_bytes: int  #: Of the packed file, which is mapped.
    kv_bytes_per_token: int
    chunk_bytes_per_token: int  #: The KV cache's own work space, for each token of a chunk.
    step_bytes_per_token: int  #: What lives of a step at once, for each of its tokens; estimated.
    logits_per_row: int = 1  #: How often the logits of a row are there at once.


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What an engine takes and why. `str()` of it is a table.

    Everything is in bytes, or counts of tokens and sequences. `models` is the model and, with
    `small_draft`, the one that guesses; each has a KV cache of `limits.max_total_tokens`.
    """

    mode: Mode
    models: tuple[ModelMemory, ...]
    limits: ServingLimits
    budget: MemoryBudget
    is_speculative: bool
    given: frozenset[str]  #: The sizes that the configuration sets; the others are inferred.

    @property
    def max_num_sequence(self) -> int:
        """Sequences that run at once."""
        return self.limits.max_batch_size

    @property
    def max_total_sequence_length(self) -> int:
        """Tokens of all sequences in the KV cache."""
        return self.limits.max_total_tokens

    @property
    def max_single_sequence_length(self) -> int:
        """Tokens of one sequence, prompt and completion."""
        return self.limits.context_window

    @property
    def prefill_chunk_size(self) -> int:
        """Tokens that a forward pass has room for."""
        return self.limits.prefill_chunk_size

    @property
    def step_token_budget(self) -> int:
        """Tokens that a step is given."""
        return self.limits.step_token_budget

    @property
    def weight_bytes(self) -> int:
        """The packed weights."""
        return sum(model.weight_bytes for model in self.models)

    @property
    def kv_bytes_per_token(self) -> int:
        """A token in every KV cache there is."""
        return sum(model.kv_bytes_per_token for model in self.models)

    @property
    def num_pages(self) -> int:
        """Pages of one KV cache: those of `max_total_sequence_length`, and TVM's spare one."""
        return self.limits.max_total_tokens // PAGE_SIZE + 1

    @property
    def kv_cache_bytes(self) -> int:
        """The pages of the KV caches."""
        return self.num_pages * PAGE_SIZE * self.kv_bytes_per_token

    @property
    def prefix_cache_bytes(self) -> int:
        """Of the KV cache, what ended sequences may keep; they give way when room is needed."""
        kept = self.limits.max_recycling_sequences
        if kept < 0:
            return self.kv_cache_bytes

        pages = -(-self.limits.context_window // PAGE_SIZE)
        of_sequence = pages * PAGE_SIZE * self.kv_bytes_per_token
        return min(self.kv_cache_bytes, kept * of_sequence)

    @property
    def temporary_bytes(self) -> int:
        """The KV caches' work space, and what a step computes with; estimated."""
        return _temporary_bytes(self.models, _sizes_of(self.limits))

    @property
    def logits_bytes(self) -> int:
        """Logits of a step's rows (of all its tokens, with guesses), and a row's own copies."""
        return _logits_bytes(
            self.models, _sizes_of(self.limits), is_speculative=self.is_speculative
        )

    @property
    def total_bytes(self) -> int:
        """The sum, to be compared with `budget.nbytes`."""
        fixed = self.weight_bytes + self.temporary_bytes + self.logits_bytes
        return fixed + self.kv_cache_bytes

    @property
    def fits(self) -> bool:
        """Whether the budget holds it."""
        return self.total_bytes <= self.budget.nbytes

    def complete(self, config: EngineConfig) -> EngineConfig:
        """A configuration with the planned sizes in it, also where it has others."""
        return replace(config, **{name: getattr(self, name) for name in _SIZES})

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        models = " + ".join(f"{model.name} ({model.quantization})" for model in self.models)
        yield f"{models}, mode {self.mode}"
        for name, nbytes, note in self._parts():
            yield f"  {name:26}{_mebibytes(nbytes)}  {note}".rstrip()
        for name in _SIZES:
            origin = "given" if name in self.given else "inferred"
            yield f"  {name:26}{getattr(self, name):>12,}      {origin}"

    def _parts(self) -> Iterator[tuple[str, int, str]]:
        pages = (
            f"{self.num_pages:,} pages of {PAGE_SIZE} tokens of {self.kv_bytes_per_token:,} bytes"
        )
        kept = self.limits.max_recycling_sequences
        yield "weights", self.weight_bytes, "mapped from the cache on disk"
        yield "KV cache", self.kv_cache_bytes, pages
        sequences = "sequences without limit" if kept < 0 else f"{kept:,} sequences"
        yield "  of it the prefix cache", self.prefix_cache_bytes, f"at most, {sequences}"
        yield "work space", self.temporary_bytes, "estimated"
        yield "logits", self.logits_bytes, ""
        yield "total", self.total_bytes, "" if self.fits else "MORE THAN THE BUDGET"
        yield "budget", self.budget.nbytes, str(self.budget)


class InsufficientMemoryError(ModelLoadError):
    """The memory does not hold what was asked for; `plan` says what would take how much."""

    def __init__(self, message: str, *, plan: MemoryPlan) -> None:
        super().__init__(message, field="max_total_sequence_length")
        self.plan: MemoryPlan = plan


def plan_memory(directory: ModelDirectory, mode: Mode, config: EngineConfig) -> MemoryPlan:
    """Plan a model, and the one that guesses for it. Reads small files only.

    Raises:
        InsufficientMemoryError: the memory does not hold it; the error has the plan.
        ModelLoadError: a file or a field is at fault.
        BadRequestError: the model is an encoder, or a field contradicts it.
    """
    models = [_model_memory(directory, config.quantization, config.kv_cache_dtype)]
    draft = find_draft(directory, config)
    if draft is not None:
        models.append(_model_memory(draft, None, config.kv_cache_dtype))

    return plan_models(models, mode, config, memory_budget(config.gpu_memory_utilization))


def plan_models(
    models: Sequence[ModelMemory], mode: Mode, config: EngineConfig, budget: MemoryBudget
) -> MemoryPlan:
    """Divide a budget. Pure; the first model is the one that is served.

    Raises:
        InsufficientMemoryError: the budget does not hold it.
        BadRequestError: the sizes of the configuration contradict each other.
    """
    is_speculative = config.speculative_mode != "disable"
    sizes = step_sizes(config, mode=mode, context_window=models[0].context_window)
    fixed = (
        sum(model.weight_bytes for model in models)
        + _temporary_bytes(models, sizes)
        + _logits_bytes(models, sizes, is_speculative=is_speculative)
    )
    kv_bytes = sum(model.kv_bytes_per_token for model in models)

    def plan(memory_bytes: int) -> MemoryPlan:
        limits = serving_limits(
            config,
            mode=mode,
            context_window=models[0].context_window,
            kv_bytes_per_token=kv_bytes,
            memory_bytes=memory_bytes,
        )
        return MemoryPlan(
            mode=mode,
            models=tuple(models),
            limits=limits,
            budget=budget,
            given=frozenset(name for name in _SIZES if getattr(config, name) is not None),
            is_speculative=is_speculative,
        )

    try:
        return plan(max(0, budget.nbytes - fixed - PAGE_SIZE * kv_bytes))
    except ModelLoadError as error:
        wanted = plan(_UNBOUNDED)
        raise InsufficientMemoryError(f"{error}\n{wanted}", plan=wanted) from None


def _temporary_bytes(models: Sequence[ModelMemory], sizes: StepSizes) -> int:
    chunks = sum(model.chunk_bytes_per_token for model in models) * sizes.prefill_chunk_size
    # The models run one after the other.
    return chunks + max(model.step_bytes_per_token for model in models) * sizes.step_token_budget


def _logits_bytes(models: Sequence[ModelMemory], sizes: StepSizes, *, is_speculative: bool) -> int:
    computed = sizes.step_token_budget if is_speculative else sizes.max_batch_size
    # A row whose grammar is late keeps its logits, and one row at a time is adjusted.
    kept = sizes.max_batch_size + 1
    rows = computed * sum(model.logits_per_row for model in models)
    return 4 * models[0].vocab_size * (rows + kept)


def _model_memory(
    directory: ModelDirectory, wanted: str | None, kv_dtype: KVCacheType
) -> ModelMemory:
    description = read_description(directory.path)
    config = description.config
    if not isinstance(config, DecoderConfig):
        raise BadRequestError(
            f"{directory.path} is an encoder, which has no KV cache to plan", param="model"
        )

    quantization = quantization_named(choose_quantization(directory, description, wanted))
    parameters = pack_parameters(decoder_parameters(config), quantization)
    cache = kv_cache_of(quantization, kv_dtype)
    row = cache.row_bytes(config.head_dim)
    query_heads, key_heads = config.num_attention_heads, config.num_key_value_heads
    queries, keys = query_heads * config.head_dim, key_heads * config.head_dim
    # Beside a cache of 8 bits, what is rotated in another type.
    rotated = (queries + 2 * keys) * cache.compute_bytes if cache.is_8_bit else 0
    return ModelMemory(
        name=directory.path.name,
        quantization=quantization.name,
        context_window=config.context_window_size,
        vocab_size=config.vocab_size,
        logits_per_row=2 if config.final_logit_softcapping else 1,
        weight_bytes=packed_file_bytes(parameters),
        kv_bytes_per_token=2 * config.num_hidden_layers * key_heads * row,
        # Queries, keys, values and results, and two sums of each head.
        chunk_bytes_per_token=2 * (query_heads + key_heads) * row + 8 * query_heads,
        # Four states, the fused projection and what attention gives.
        step_bytes_per_token=4 * (4 * config.hidden_size + 2 * queries + 2 * keys)
        + _feed_forward_bytes(config, quantization.matrix_format)
        + rotated,
    )


def _feed_forward_bytes(config: DecoderConfig, matrix_format: MatrixFormat) -> int:
    """What lives of a token's feed-forward layer at once."""
    inner = _inner_bytes(config, matrix_format)
    experts = config.experts
    if experts is None:
        return inner

    element = {"q4": 2, "bf16": 6, "f32": 4}[matrix_format]  # At most; of bf16 three parts.
    of_one = element * (config.hidden_size + experts.intermediate_size)
    routing = 4 * experts.count + element * config.hidden_size
    shared = 12 * experts.shared_size
    return max(inner, shared + routing + experts.per_token * of_one)


def _inner_bytes(config: DecoderConfig, matrix_format: MatrixFormat) -> int:
    inner = config.intermediate_size
    if not config.traits.gated:
        return 8 * inner

    # Where one kernel does all, only rounded values are kept.
    traits = config.traits
    plain = traits.norm_kind == "rms" and traits.norm_placement == "pre" and not traits.mlp_bias
    fused = plain and fuses_feed_forward(matrix_format, inner)
    return 2 * inner if fused else 12 * inner


def _sizes_of(limits: ServingLimits) -> StepSizes:
    return StepSizes(limits.max_batch_size, limits.prefill_chunk_size, limits.step_token_budget)


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:>12,.1f} MiB"
