"""The command `aiomlc compile`."""

from __future__ import annotations

__all__ = ("compile_", "parse_overrides")

from pathlib import Path
from typing import Annotated

import typer

from aiomlc.cli.failures import CommandError, report_failures
from aiomlc.cli.options import Debug, Quantization


def compile_(  # noqa: PLR0913 - one parameter per option.
    model: Annotated[
        str, typer.Argument(help="A model's directory, or a repository.", metavar="MODEL")
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    quantization: Quantization = None,
    model_type: Annotated[str, typer.Option(help="The architecture.")] = "auto",
    device: Annotated[str, typer.Option(help="auto or cpu.")] = "auto",
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
        from aiomlc.cli.tool_runner import run_tool
        from aiomlc.tools.compile_library import compile_model

        values = parse_overrides(overrides)
        path = run_tool(
            lambda show: compile_model(
                model,
                output,
                quantization=quantization,
                model_type=model_type,
                device=device,
                opt=opt,
                overrides=values,
                force=force,
                on_progress=show,
            )
        )
        typer.echo(f"wrote {path}")


def parse_overrides(text: str) -> dict[str, int | str]:
    """Return the settings in `name=value;name=value`.

    Raises:
        CommandError: If a setting has no value.
    """
    values: dict[str, int | str] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, value = (part.strip() for part in item.partition("="))
        if not separator or not value:
            raise CommandError(f"--overrides must be 'name=value;name=value', got {item!r}")

        values[name] = int(value) if value.lstrip("-").isdecimal() else value
    return values
