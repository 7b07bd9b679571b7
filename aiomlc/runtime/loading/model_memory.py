"""The memory that one model needs, computed from its configuration."""

from __future__ import annotations

__all__ = ("ModelMemory", "model_memory")

from collections.abc import Sequence
from dataclasses import dataclass

from aiomlc.compiler import Backend
from aiomlc.compiler.parameters import pack_parameters, shard_quantization
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.models import AnyConfig, AudioConfig, DecoderConfig, VisionConfig, decoder_parameters
from aiomlc.models.config.audio import BATCH_CHUNKS
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.shards import divided_model
from aiomlc.runtime.native.recurrent_slots import slot_bytes
from aiomlc.runtime.towers.tower_batcher import BATCH_TOKENS, CACHE_BYTES
from aiomlc.weights.plan import packed_file_bytes


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """Memory requirements of one model."""

    name: str
    quantization: str
    context_window: int  #: Maximum tokens of one sequence, from the model's files.
    vocab_size: int
    weight_bytes: int  #: Size of the packed file, which is mapped.
    kv_bytes_per_token: int
    chunk_bytes_per_token: int  #: Workspace of the KV cache, per token of a prefill chunk.
    step_bytes_per_token: int  #: Estimated peak of the activations, per token of a step.
    slot_bytes: int = 0  #: Size of the recurrent states after some tokens; 0 without such layers.
    recorded_bytes_per_token: int = 0  #: Inputs of recurrent layers, kept to undo drafts.
    logits_per_row: int = 1  #: Copies of a row's logits that exist at once.
    #: Of the tower: its packed file, a batch, and the embedded items that it keeps.
    tower_bytes: int = 0
    #: Of `weight_bytes`: experts that one token does not use, which may stay on disk.
    idle_expert_bytes: int = 0
    #: The processes that compute it together; sizes are those of all of them.
    num_shards: int = 1


def model_memory(facts: ModelFacts, backend: Backend, engine_config: EngineConfig) -> ModelMemory:
    """Return the memory that a decoder needs, with all of its shards.

    Raises:
        BadRequestError: If the model is an encoder, or the back end does not support it.
        ModelLoadError: If a file or field is missing or invalid.
    """
    config, directory, kv_dtype = facts.config, facts.directory, engine_config.kv_cache_dtype
    if not isinstance(config, DecoderConfig):
        kind = "a speech model" if config.kind == "speech" else "an encoder"
        raise BadRequestError(
            f"{directory.path} is {kind}: memory plans are of decoders", param="model"
        )

    quantization = facts.quantization
    backend.check(config, quantization, kv_dtype)
    model = divided_model(facts, config, engine_config)
    count, config = model.num_shards, model.shard
    cache = backend.kv_cache(config, quantization, kv_dtype)
    is_whole = count == 1  # Then the facts have them already.
    parameters = facts.parameters if is_whole else decoder_parameters(model)
    parts = facts.packed if is_whole else pack_parameters(parameters, quantization)
    formats = shard_quantization(parameters, quantization)
    extra = backend.token_bytes(config, parameters, formats, cache)
    shape = config.cache_shape
    heads = shape.num_layers * shape.num_kv_heads
    packed = [part.stored_as(backend.layout_family) for part in parts]
    return ModelMemory(
        name=directory.name,
        quantization=quantization.name,
        context_window=config.context_window_size,
        vocab_size=config.vocab_size,
        logits_per_row=2 if config.final_logit_softcapping else 1,
        num_shards=count,
        weight_bytes=count * packed_file_bytes(packed),
        tower_bytes=_tower_bytes(facts.tower, backend),
        idle_expert_bytes=count * _idle_expert_bytes(config, packed),
        kv_bytes_per_token=count * 2 * heads * cache.row_bytes(shape.head_dim),
        slot_bytes=slot_bytes([mixer.state_size for mixer in config.recurrent]),
        recorded_bytes_per_token=4 * sum(mixer.input_size for mixer in config.recurrent),
        chunk_bytes_per_token=count * extra.chunk,
        step_bytes_per_token=count * extra.step,
    )


def _tower_bytes(facts: ModelFacts | None, backend: Backend) -> int:
    if facts is None:
        return 0

    packed = [parameter.stored_as(backend.layout_family) for parameter in facts.packed]
    return packed_file_bytes(packed) + _batch_bytes(facts.config) + CACHE_BYTES


def _batch_bytes(tower: AnyConfig) -> int:
    """Return the bytes of what a tower computes at once."""
    match tower:
        case VisionConfig():
            return 4 * tower.token_floats * BATCH_TOKENS
        case AudioConfig():
            return 4 * (tower.chunk_floats * BATCH_CHUNKS + tower.layer_floats * BATCH_TOKENS)
        case _:
            raise AssertionError(tower)


def _idle_expert_bytes(config: DecoderConfig, packed: Sequence[PackedParameter]) -> int:
    """Return the bytes of the experts that one token does not use."""
    used = max((experts.per_token / experts.count for experts in config.experts), default=1.0)
    return int((1 - used) * sum(p.nbytes for p in packed if p.num_experts))
