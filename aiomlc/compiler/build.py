"""Compilation of a job to bytecode of TVM's virtual machine."""

from __future__ import annotations

__all__ = ("build", "library_metadata")

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax import transform
from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu import lower_to_cpu
from aiomlc.compiler.backends.cpu_cache import cpu_cache_factory
from aiomlc.compiler.cache import LIBRARY_NAME, METADATA_NAME
from aiomlc.compiler.encoder_graph import encoder_graph
from aiomlc.compiler.job import CompileJob, LibraryMetadata, LibraryWriteError
from aiomlc.compiler.kv_cache import kv_cache_of
from aiomlc.compiler.parameters import parameter_records
from aiomlc.compiler.passes.buffer_reuse import reuse_buffers
from aiomlc.compiler.passes.dead_tuples import drop_dead_tuples
from aiomlc.compiler.quantization import Quantization, quantization_of
from aiomlc.config import PAGE_SIZE
from aiomlc.models import DecoderConfig, EncoderConfig, decoder_parameters
from aiomlc.models.graph.decoder import Decoder

Report = Callable[[str, float], None]


def build(job: CompileJob, directory: Path, report: Report) -> None:
    """Write the compiled library and its metadata into `directory`.

    Args:
        job: The library to compile.
        directory: An existing directory.
        report: Called with each stage and the completed fraction of the work.

    Raises:
        LibraryWriteError: If a file cannot be written.
    """
    quantization = quantization_of(job.quantization, job.layouts, job.ordered)
    report("graph", 0.1)
    if isinstance(job.config, EncoderConfig):
        module, metadata = encoder_graph(job.config, quantization)
    else:
        module, metadata = _decoder_graph(job, job.config, quantization)
    text = json.dumps(metadata)
    module = _with_metadata(module, text)
    report("bytecode", 0.5)
    executable = relax.build(module, tvm.target.Target("llvm"), relax_pipeline=_pipeline())
    report("save", 0.9)
    try:
        (directory / LIBRARY_NAME).write_bytes(_serialize(executable))
        (directory / METADATA_NAME).write_text(text)
    except OSError as error:
        raise LibraryWriteError(*error.args) from error


def _serialize(executable: relax.VMExecutable) -> bytes:
    """Return the bytes of a library; TVM would write a truncated file to a full disk silently."""
    descriptor = os.memfd_create(LIBRARY_NAME)
    try:
        path = Path(f"/proc/self/fd/{descriptor}")
        executable.mod.write_to_file(str(path), "vm")
        return path.read_bytes()
    finally:
        os.close(descriptor)


def _decoder_graph(
    job: CompileJob, config: DecoderConfig, quantization: Quantization
) -> tuple[tvm.IRModule, LibraryMetadata]:
    cache = kv_cache_of(quantization, job.kv_cache_dtype)
    decoder = Decoder(config, cache.compute_dtype, cpu_cache_factory(config, cache))
    decoder = lower_to_cpu(decoder, quantization, cache)
    module, named, _ = decoder.export_tvm(_functions(config.hidden_size), allow_extern=True)
    return module, library_metadata(job, config, quantization, [name for name, _ in named])


def library_metadata(
    job: CompileJob, config: DecoderConfig, quantization: Quantization, graph_names: list[str]
) -> LibraryMetadata:
    """Return the metadata that a loader reads; `graph_names` orders the packed parameters."""
    return {
        "model_type": config.model_type,
        "quantization": quantization.name,
        "vocab_size": config.vocab_size,
        "context_window_size": config.context_window_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "kv_dtype": kv_cache_of(quantization, job.kv_cache_dtype).dtype,
        "page_size": PAGE_SIZE,
        "prefill_chunk_size": job.prefill_chunk_size,
        "max_batch_size": job.max_batch_size,
        "tie_word_embeddings": config.tie_word_embeddings,
        "params": parameter_records(decoder_parameters(config), quantization, graph_names),
    }


def _functions(hidden: int) -> dict[str, dict[str, Any]]:
    packed = {"param_mode": "packed", "effect_mode": "none"}
    no_params = {"param_mode": "none", "effect_mode": "none"}
    cache = nn.spec.Object(object_type=nn.Object)
    return {
        "embed": {"ids": nn.spec.Tensor(["n"], "int32"), "$": packed},
        "batch_prefill": {
            "x": nn.spec.Tensor([1, "n", hidden], "float32"),
            "logit_positions": nn.spec.Tensor(["b"], "int32"),
            "kv": cache,
            "$": packed,
        },
        "batch_decode": {
            "x": nn.spec.Tensor(["b", 1, hidden], "float32"),
            "kv": cache,
            "$": packed,
        },
        "create_tir_paged_kv_cache": {
            "max_batch_size": int,
            "max_total_tokens": int,
            "prefill_chunk_size": int,
            "page_size": int,
            "sliding_window": int,
            "$": no_params,
        },
    }


def _with_metadata(module: tvm.IRModule, text: str) -> tvm.IRModule:
    builder = relax.BlockBuilder(module)
    with builder.function("_metadata", params=[]):
        builder.emit_func_output(tvm.ir.StringImm(text))
    return builder.finalize()


def _pipeline() -> tvm.transform.Pass:
    """Return the passes for a graph whose operators are all kernel calls.

    No code is generated, so the machine needs neither a compiler nor a linker.
    """
    return tvm.transform.Sequential(
        [
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            _module_pass(reuse_buffers),
            transform.CanonicalizeBindings(),  # A binding of a variable to another costs a copy.
            _module_pass(drop_dead_tuples),
            transform.LowerRuntimeBuiltin(),
            transform.VMShapeLower(),
            transform.AttachGlobalSymbol(),
            _module_pass(_check_only_bytecode),
        ]
    )


def _module_pass(function: Callable[..., tvm.IRModule]) -> tvm.transform.Pass:
    return tvm.transform.module_pass(function, opt_level=0)


def _check_only_bytecode(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    others = [str(n) for n, f in module.functions.items() if not isinstance(f, relax.Function)]
    if others:
        raise AssertionError(
            f"these functions are not bytecode and would need code generation: {', '.join(others)}"
        )

    return module
