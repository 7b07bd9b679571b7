"""The command `aiomlc compile`."""

from __future__ import annotations

__all__ = ("compile_",)

from pathlib import Path
from typing import Annotated

import typer

from aiomlc.cli.options.common import Architecture, Debug, Device, Quantization
from aiomlc.cli.options.overrides import parse_overrides
from aiomlc.cli.terminal.failures import report_failures


def compile_(  # noqa: PLR0913 - one parameter per option.
    model: Annotated[
        str, typer.Argument(help="A model's directory, or a repository.", metavar="MODEL")
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    quantization: Quantization = None,
    model_type: Architecture = "auto",
    device: Device = "auto",
    arch: Annotated[
        str | None,
        typer.Option(help="With --device cuda, the architecture of an absent GPU: sm_90a."),
    ] = None,
    opt: Annotated[str, typer.Option(help="O0 to O3, which are the same here.")] = "O2",
    overrides: Annotated[
        str,
        typer.Option(
            help="Settings of the engine: 'sliding_window_size=1024;kv_cache_dtype=int8'."
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    debug: Debug = False,
) -> None:
    """Compile a model's library ahead of time, for --model-lib."""
    with report_failures(debug=debug):
        from aiomlc.cli.terminal.progress import run_with_progress
        from aiomlc.tools.compile_library import compile_model

        values = parse_overrides(overrides)
        path = run_with_progress(
            lambda on_progress: compile_model(
                model,
                output,
                quantization=quantization,
                model_type=model_type,
                device=device,
                arch=arch,
                opt=opt,
                overrides=values,
                force=force,
                on_progress=on_progress,
            )
        )
        typer.echo(f"wrote {path}")
