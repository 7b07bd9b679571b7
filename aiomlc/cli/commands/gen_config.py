"""The command `aiomlc gen-config`, which is MLC LLM's `gen_config`."""

from __future__ import annotations

__all__ = ("gen_config",)

from typing import Annotated

import typer

from aiomlc.cli.options.common import Architecture, Debug, HuggingFaceModel, Output
from aiomlc.cli.terminal.failures import report_failures

_Size = Annotated[int | None, typer.Option(help="By default that of the model.")]


def gen_config(  # noqa: PLR0913 - one parameter per option.
    config: HuggingFaceModel,
    *,
    quantization: Annotated[str, typer.Option(help="The format of the weights: q4f16_1, ...")],
    conv_template: Annotated[str, typer.Option(help="A conversation template: chatml, ...")],
    output: Output,
    model_type: Architecture = "auto",
    context_window_size: _Size = None,
    sliding_window_size: _Size = None,
    prefill_chunk_size: _Size = None,
    attention_sink_size: _Size = None,
    tensor_parallel_shards: _Size = None,
    pipeline_parallel_stages: _Size = None,
    max_batch_size: Annotated[int, typer.Option(help="Of MLC LLM's compiler.")] = 128,
    force: Annotated[bool, typer.Option("--force", help="Replace files in the output.")] = False,
    debug: Debug = False,
) -> None:
    """Write the mlc-chat-config.json of a Hugging Face model.

    The files of its tokenizer are copied.
    """
    with report_failures(debug=debug):
        from aiomlc.cli.terminal.progress import run_with_progress
        from aiomlc.tools import gen_config as tool

        path = run_with_progress(
            lambda on_progress: tool.gen_config(
                config,
                output,
                quantization=quantization,
                conv_template=conv_template,
                model_type=model_type,
                context_window_size=context_window_size,
                sliding_window_size=sliding_window_size,
                prefill_chunk_size=prefill_chunk_size,
                attention_sink_size=attention_sink_size,
                tensor_parallel_shards=tensor_parallel_shards,
                pipeline_parallel_stages=pipeline_parallel_stages,
                max_batch_size=max_batch_size,
                force=force,
                on_progress=on_progress,
            )
        )
        typer.echo(f"wrote {path}")
