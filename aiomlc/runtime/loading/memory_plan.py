"""Memory plans, made from a model's files without allocating, compiling or converting."""

from __future__ import annotations

__all__ = (
    "InsufficientMemoryError",
    "MemoryPlan",
    "ModelMemory",
    "plan_engine",
    "plan_memory",
    "plan_models",
)

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from aiomlc.compiler import backend_of
from aiomlc.config import PAGE_SIZE, EngineConfig, Mode
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.runtime.loading.auto_device import device_of_kind, first_device
from aiomlc.runtime.loading.capacity import ServingLimits, StepSizes, serving_limits, step_sizes
from aiomlc.runtime.loading.device import find_device
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.memory_budget import MemoryBudget, memory_budget
from aiomlc.runtime.loading.model_directory import ModelDirectory, find_draft
from aiomlc.runtime.loading.model_memory import ModelMemory, model_memory

_UNBOUNDED = 1 << 62
# Of the budget, for sequences, if idle experts have to leave the memory: the more it is, the more
# experts are read from disk.
_SEQUENCE_SHARE = 0.125
_SIZES = (
    "max_num_sequence",
    "max_total_sequence_length",
    "max_single_sequence_length",
    "prefill_chunk_size",
    "step_token_budget",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Memory requirements of an engine; `str()` gives a table.

    Sizes are in bytes, tokens or sequences. `models` contains the model and, with `small_draft`,
    the draft model; each has a KV cache of `limits.max_total_tokens`.
    """

    mode: Mode
    models: tuple[ModelMemory, ...]
    limits: ServingLimits
    budget: MemoryBudget
    is_speculative: bool
    given: frozenset[str]  #: Names of the sizes that the configuration sets; the rest is inferred.

    @property
    def max_num_sequence(self) -> int:
        """Maximum number of running sequences."""
        return self.limits.max_batch_size

    @property
    def max_total_sequence_length(self) -> int:
        """Maximum tokens of all sequences in the KV cache."""
        return self.limits.max_total_tokens

    @property
    def max_single_sequence_length(self) -> int:
        """Maximum tokens of one sequence, prompt and completion."""
        return self.limits.context_window

    @property
    def prefill_chunk_size(self) -> int:
        """Maximum tokens of a forward pass."""
        return self.limits.prefill_chunk_size

    @property
    def step_token_budget(self) -> int:
        """Maximum tokens of a step."""
        return self.limits.step_token_budget

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights of all models."""
        return sum(model.weight_bytes for model in self.models)

    @property
    def idle_expert_bytes(self) -> int:
        """Of `weight_bytes`: experts that one token does not use.

        The system drops them from memory when it is short, and reads them from disk when a token
        needs them.
        """
        return sum(model.idle_expert_bytes for model in self.models)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token in the KV caches of all models."""
        return sum(model.kv_bytes_per_token for model in self.models)

    @property
    def tower_bytes(self) -> int:
        """Bytes of the tower that reads images or audio, of a batch, and of what is kept."""
        return sum(model.tower_bytes for model in self.models)

    @property
    def num_pages(self) -> int:
        """Pages of one KV cache: those of `max_total_sequence_length` and TVM's spare page."""
        return self.limits.max_total_tokens // PAGE_SIZE + 1

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the pages of all KV caches."""
        return self.num_pages * PAGE_SIZE * self.kv_bytes_per_token

    @property
    def recurrent_state_bytes(self) -> int:
        """Bytes of all slots: recurrent states after the last tokens, and at checkpoints."""
        return self.limits.num_slots * sum(model.slot_bytes for model in self.models)

    @property
    def prefix_cache_bytes(self) -> int:
        """Maximum bytes of the KV caches that finished sequences occupy until they are evicted."""
        max_recycling = self.limits.max_recycling_sequences
        if max_recycling < 0:
            return self.kv_cache_bytes

        pages = -(-self.limits.context_window // PAGE_SIZE)
        sequence_bytes = pages * PAGE_SIZE * self.kv_bytes_per_token
        return min(self.kv_cache_bytes, max_recycling * sequence_bytes)

    @property
    def temporary_bytes(self) -> int:
        """Estimated bytes of the KV caches' workspace and of the activations of a step."""
        return _temporary_bytes(
            self.models, _sizes_of(self.limits), is_speculative=self.is_speculative
        )

    @property
    def logits_bytes(self) -> int:
        """Bytes of the logits of a step: per row, or per token with speculative decoding."""
        return _logits_bytes(
            self.models, _sizes_of(self.limits), is_speculative=self.is_speculative
        )

    @property
    def total_bytes(self) -> int:
        """Sum of all parts, for comparison with `budget.nbytes`."""
        fixed = self.weight_bytes + self.tower_bytes + self.temporary_bytes + self.logits_bytes
        return fixed + self.kv_cache_bytes + self.recurrent_state_bytes

    @property
    def fits(self) -> bool:
        """Whether the total, without idle experts, is within the budget."""
        return self.total_bytes - self.idle_expert_bytes <= self.budget.nbytes

    @property
    def drops_experts(self) -> bool:
        """Whether the total fits only without idle experts, so that disk reads slow tokens down."""
        return self.fits and self.total_bytes > self.budget.nbytes

    def complete(self, config: EngineConfig) -> EngineConfig:
        """Return a configuration whose sizes are replaced by the planned ones."""
        return replace(config, **{name: getattr(self, name) for name in _SIZES})

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        sizes = f"{self.total_bytes / 2**20:,.1f} of {self.budget.nbytes / 2**20:,.1f} MiB"
        return f"<MemoryPlan of {self.models[0].name}, mode {self.mode}: {sizes}; print it>"

    def _lines(self) -> Iterator[str]:
        models = " + ".join(f"{model.name} ({model.quantization})" for model in self.models)
        yield f"{models}, mode {self.mode}"
        if (shards := self.models[0].num_shards) > 1:
            each = _mebibytes(self.models[0].weight_bytes // shards).strip()
            yield f"  tensor_parallel_shards: {shards}, with {each} of weights each"
        for name, nbytes, note in self._parts():
            yield f"  {name:26}{_mebibytes(nbytes)}  {note}".rstrip()
        for name in _SIZES:
            origin = "given" if name in self.given else "inferred"
            yield f"  {name:26}{getattr(self, name):>12,}      {origin}"

    def _parts(self) -> Iterator[tuple[str, int, str]]:
        pages = (
            f"{self.num_pages:,} pages of {PAGE_SIZE} tokens of {self.kv_bytes_per_token:,} bytes"
        )
        max_recycling = self.limits.max_recycling_sequences
        yield "weights", self.weight_bytes, "mapped from the cache on disk"
        if self.idle_expert_bytes:
            yield "  idle experts", self.idle_expert_bytes, "of a token; dropped if memory is short"
        if self.tower_bytes:
            yield "tower", self.tower_bytes, "its weights, and the images or audio that it reads"
        yield "KV cache", self.kv_cache_bytes, pages
        if self.recurrent_state_bytes:
            slots = f"{self.limits.num_slots:,} slots with their checkpoints"
            yield "recurrent states", self.recurrent_state_bytes, slots
        sequences = "any number of" if max_recycling < 0 else f"{max_recycling:,}"
        yield "  prefix cache", self.prefix_cache_bytes, f"at most, {sequences} sequences"
        yield "workspace", self.temporary_bytes, "estimated"
        yield "logits", self.logits_bytes, ""
        verdict = "more than the budget: experts are read from disk" if self.drops_experts else ""
        yield "total", self.total_bytes, verdict if self.fits else "MORE THAN THE BUDGET"
        yield "budget", self.budget.nbytes, str(self.budget)


class InsufficientMemoryError(ModelLoadError):
    """The memory does not hold the model; `plan` lists the requirements."""

    def __init__(self, message: str, *, plan: MemoryPlan) -> None:
        super().__init__(message, field="max_total_sequence_length")
        self.plan: MemoryPlan = plan


def plan_memory(
    directory: ModelDirectory, mode: Mode, config: EngineConfig, device: str = "auto"
) -> MemoryPlan:
    """Plan a model and its draft model. Reads only small files.

    Raises:
        AiomlcError: As `plan_engine` and `find_draft`.
    """
    draft = find_draft(directory, config)
    vision = config.vision_quantization
    models = [ModelFacts(directory, config.quantization, vision_quantization=vision)]
    if draft is not None:
        models.append(ModelFacts(draft))

    device = device_of_kind(device, models[0].config.kind)
    return first_device(device, lambda name: plan_engine(models, mode, config, name))


def plan_engine(
    models: Sequence[ModelFacts], mode: Mode, config: EngineConfig, device: str
) -> MemoryPlan:
    """Plan a model and its draft model, if any.

    Raises:
        InsufficientMemoryError: If the memory does not hold the plan, which the error contains.
        ModelLoadError: If a file or field is missing or invalid.
        BadRequestError: If the model is an encoder, `config` contradicts the model, or the device
            does not support them.
    """
    backend = backend_of(device)
    served, *drafts = models
    memories = [
        model_memory(served, backend, config),
        *(model_memory(n, backend, replace(config, tensor_parallel_shards=1)) for n in drafts),
    ]
    if config.max_history_size and not memories[0].slot_bytes:
        raise BadRequestError(
            "KV cache does not support max_history_size, while it is set to "
            f"{config.max_history_size} in the input EngineConfig",
            param="max_history_size",
        )

    budget = memory_budget(config.gpu_memory_utilization, find_device(device).memory)
    return plan_models(memories, mode, config, budget)


def plan_models(
    models: Sequence[ModelMemory], mode: Mode, config: EngineConfig, budget: MemoryBudget
) -> MemoryPlan:
    """Divide a budget among the models, of which the first is served. Does no I/O.

    If it does not hold all experts of a mixture, sequences get a small part of it, and the experts
    that are in use the rest.

    Raises:
        InsufficientMemoryError: If the budget does not hold the plan.
        BadRequestError: If sizes in `config` contradict each other.
    """
    is_speculative = config.speculative_mode != "disable"
    sizes = step_sizes(config, mode=mode, context_window=models[0].context_window)
    fixed = (
        sum(model.weight_bytes + model.tower_bytes for model in models)
        + _temporary_bytes(models, sizes, is_speculative=is_speculative)
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
            slot_bytes=sum(model.slot_bytes for model in models),
        )
        return MemoryPlan(
            mode=mode,
            models=tuple(models),
            limits=limits,
            budget=budget,
            given=frozenset(name for name in _SIZES if getattr(config, name) is not None),
            is_speculative=is_speculative,
        )

    left = budget.nbytes - fixed - PAGE_SIZE * kv_bytes
    idle = sum(model.idle_expert_bytes for model in models)
    try:
        return plan(max(0, left))
    except ModelLoadError as error:
        with suppress(ModelLoadError):
            if idle:
                return plan(max(0, min(left + idle, int(_SEQUENCE_SHARE * budget.nbytes))))

        full_plan = plan(_UNBOUNDED)
        raise InsufficientMemoryError(f"{error}\n{full_plan}", plan=full_plan) from None


def _temporary_bytes(
    models: Sequence[ModelMemory], sizes: StepSizes, *, is_speculative: bool
) -> int:
    chunks = sum(model.chunk_bytes_per_token for model in models) * sizes.prefill_chunk_size
    if is_speculative:
        chunks += models[0].recorded_bytes_per_token * sizes.step_token_budget
    # The models run one after the other.
    step = max(model.step_bytes_per_token for model in models) * sizes.idle_step_token_budget
    return chunks + step


def _logits_bytes(models: Sequence[ModelMemory], sizes: StepSizes, *, is_speculative: bool) -> int:
    computed = sizes.step_token_budget if is_speculative else sizes.max_batch_size
    # Rows keep their logits while their grammar mask is computed, and one more row is adjusted.
    copies = sizes.max_batch_size + 1
    rows = computed * sum(model.logits_per_row for model in models)
    return 4 * models[0].vocab_size * (rows + copies)


def _sizes_of(limits: ServingLimits) -> StepSizes:
    return StepSizes(
        limits.max_batch_size,
        limits.prefill_chunk_size,
        limits.step_token_budget,
        limits.idle_step_token_budget,
    )


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:>12,.1f} MiB"
