"""Compilation of a job to a library of TVM's virtual machine, by the back end of its device."""

from __future__ import annotations

__all__ = ("build", "library_metadata")

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.compiler.audio_graph import audio_graph
from aiomlc.compiler.backends.registry import backend_of
from aiomlc.compiler.cache import LIBRARY_NAME, METADATA_NAME
from aiomlc.compiler.cache_graph import CacheGraph
from aiomlc.compiler.encoder_graph import encoder_graph
from aiomlc.compiler.job import CompileJob, LibraryMetadata, LibraryWriteError
from aiomlc.compiler.parameters import parameter_records, shard_quantization
from aiomlc.compiler.quantization import Quantization, quantization_of
from aiomlc.compiler.speech_graph import speech_graph
from aiomlc.compiler.vision_graph import vision_graph
from aiomlc.config import PAGE_SIZE
from aiomlc.models import AudioConfig, DecoderConfig, SpeechConfig, VisionConfig, decoder_parameters
from aiomlc.models.graph.decoder import Decoder

Report = Callable[[str, float], None]


def build(job: CompileJob, directory: Path, report: Report) -> None:
    """Write the compiled library and its metadata into `directory`.

    Args:
        report: Called with each stage and the completed fraction of the work.

    Raises:
        LibraryWriteError: If a file cannot be written.
    """
    backend = backend_of(job.device)
    compiler = backend.graph_compiler(job.target)
    quantization = quantization_of(job.quantization, job.layouts, job.ordered)
    report("graph", 0.1)
    match job.config:
        case DecoderConfig():
            module, metadata = _decoder_graph(job, job.config, quantization)
        case VisionConfig():
            module, metadata = vision_graph(job.config, quantization, backend, compiler)
        case AudioConfig():
            module, metadata = audio_graph(job.config, quantization, backend, compiler)
        case SpeechConfig():
            module, metadata = speech_graph(job.config, quantization, backend, compiler)
        case _:
            module, metadata = encoder_graph(job.config, quantization, backend, compiler)
    text = json.dumps(metadata)
    module = _with_metadata(module, text)
    report("bytecode", 0.5)
    executable = compiler.build(module)
    report("save", 0.9)
    try:
        (directory / LIBRARY_NAME).write_bytes(compiler.export(executable))
        (directory / METADATA_NAME).write_text(text)
    except OSError as error:
        raise LibraryWriteError(*error.args) from error


def _decoder_graph(
    job: CompileJob, config: DecoderConfig, quantization: Quantization
) -> tuple[tvm.IRModule, LibraryMetadata]:
    backend = backend_of(job.device)
    shard = config.shard
    cache = backend.kv_cache(shard, quantization, job.kv_cache_dtype)
    compiler = backend.graph_compiler(job.target)
    graph = compiler.cache_graph(shard, cache)
    decoder = Decoder(shard, cache.compute_dtype, graph.create)
    formats = shard_quantization(decoder_parameters(config), quantization)
    decoder = compiler.lower_decoder(decoder, formats, cache)
    module, named, _ = decoder.export_tvm(_functions(config, graph), allow_extern=True)
    return graph.extend(module), library_metadata(
        job, config, quantization, [name for name, _ in named]
    )


def library_metadata(
    job: CompileJob, config: DecoderConfig, quantization: Quantization, graph_names: list[str]
) -> LibraryMetadata:
    """Return the metadata that a loader reads; `graph_names` orders the packed parameters."""
    backend = backend_of(job.device)
    cache = backend.kv_cache(config.shard, quantization, job.kv_cache_dtype)
    shape = config.shard.cache_shape
    return {
        "model_type": config.model_type,
        "quantization": quantization.name,
        "vocab_size": config.vocab_size,
        "context_window_size": config.context_window_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "kv_dtype": cache.dtype,
        "kv_storage_dtype": cache.storage_dtype,
        "kv_row_size": cache.row_size(shape.head_dim),
        "embedded_row_size": config.embedded_row_size,
        "needs_whole_pieces": config.needs_whole_pieces,
        "num_piece_layers": config.num_piece_layers,
        "rope_axes": config.rope_axes,
        "recurrent_sizes": [mixer.state_size for mixer in config.recurrent],
        # A row of a layer with other heads is no row of the cache.
        "imports_prefixes": backend.imports_prefixes
        and not config.recurrent
        and config.has_equal_heads
        and config.num_shards == 1,
        "page_size": PAGE_SIZE,
        "prefill_chunk_size": job.prefill_chunk_size,
        "max_batch_size": job.max_batch_size,
        "tie_word_embeddings": config.tie_word_embeddings,
        "tensor_parallel_shards": config.num_shards,
        "params": parameter_records(
            decoder_parameters(config), quantization, backend.layout_family, graph_names
        ),
    }


def _functions(config: DecoderConfig, graph: CacheGraph) -> dict[str, dict[str, Any]]:
    embedded = config.embedded_size
    packed = {"param_mode": "packed", "effect_mode": "none"}
    no_params = {"param_mode": "none", "effect_mode": "none"}
    layers = {
        "embed_layers": {
            "x": nn.spec.Tensor(["n", config.hidden_size], "float32"),
            "ids": nn.spec.Tensor(["n"], "int32"),
            "$": packed,
        }
    }
    creation = {
        "create_tir_paged_kv_cache": {
            "max_batch_size": int,
            "max_total_tokens": int,
            "prefill_chunk_size": int,
            "page_size": int,
            "sliding_window": int,
            "$": no_params,
        }
    }
    return {
        **(layers if config.per_layer_embedding else {}),
        "embed": {"ids": nn.spec.Tensor(["n"], "int32"), "$": packed},
        "batch_prefill": {
            "x": nn.spec.Tensor([1, "n", embedded], "float32"),
            "logit_positions": nn.spec.Tensor(["b"], "int32"),
            "kv": graph.argument("n"),
            "$": packed,
        },
        "batch_decode": {
            "x": nn.spec.Tensor(["b", 1, embedded], "float32"),
            "kv": graph.argument("b"),
            "$": packed,
        },
        **(creation if graph.create is not None else {}),
    }


def _with_metadata(module: tvm.IRModule, text: str) -> tvm.IRModule:
    builder = relax.BlockBuilder(module)
    with builder.function("_metadata", params=[]):
        builder.emit_func_output(tvm.ir.StringImm(text))
    return builder.finalize()
