"""The command `aiomlc convert`, which is MLC LLM's `convert_weight`."""

from __future__ import annotations

__all__ = ("convert",)

from pathlib import Path
from typing import Annotated

import typer

from aiomlc.cli.options.common import Architecture, Debug, Device, HuggingFaceModel, Output
from aiomlc.cli.terminal.failures import report_failures


def convert(  # noqa: PLR0913 - one parameter per option.
    config: HuggingFaceModel,
    *,
    quantization: Annotated[str, typer.Option(help="The format, such as q4f16_1.")],
    output: Output,
    model_type: Architecture = "auto",
    device: Device = "auto",
    source: Annotated[str, typer.Option(help="The weights' directory, if another one.")] = "auto",
    source_format: Annotated[
        str, typer.Option(help="auto, huggingface-safetensor or awq.")
    ] = "auto",
    lora_adapter: Annotated[
        Path | None, typer.Option(help="A LoRA adapter in PEFT's format, which is merged.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Search for the scales of least squared error.")
    ] = False,
    calibration: Annotated[
        Path | None, typer.Option(help="A text whose activations weigh the errors of --search.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace weights in the output.")] = False,
    debug: Debug = False,
) -> None:
    """Convert the weights of a Hugging Face model to MLC's format."""
    with report_failures(debug=debug):
        from aiomlc.cli.terminal.progress import run_with_progress
        from aiomlc.tools.convert import convert_weights

        done = run_with_progress(
            lambda on_progress: convert_weights(
                config,
                output,
                quantization=quantization,
                model_type=model_type,
                device=device,
                source=source,
                source_format=source_format,
                lora_adapter=lora_adapter,
                search=search,
                calibration=calibration,
                force=force,
                on_progress=on_progress,
            )
        )
        typer.echo(
            f"wrote {done.nbytes / 1e6:,.1f} MB to {done.path}: {done.num_parameters:,} parameters "
            f"of {done.bits_per_parameter:.2f} bits"
        )
