"""Arguments and options that several commands have."""

from __future__ import annotations

__all__ = (
    "Architecture",
    "Debug",
    "Device",
    "HuggingFaceModel",
    "KVCacheDtype",
    "Model",
    "NamedModel",
    "Output",
    "Overrides",
    "Preset",
    "Quantization",
    "Shards",
    "one_model",
)

from pathlib import Path
from typing import Annotated

import typer

from aiomlc.cli.terminal.failures import CommandError
from aiomlc.config import Mode

_PANEL = "Engine"  # Of the commands that list their options in panels.

Model = Annotated[
    str | None,
    typer.Argument(
        help="A directory, a GGUF file or a repository of the Hugging Face hub (user/name, "
        "HF://user/name); by default the bundled model.",
        metavar="MODEL",
    ),
]
NamedModel = Annotated[
    str | None, typer.Option("--model", help="The same as MODEL.", show_default=False)
]
Device = Annotated[
    str, typer.Option(help="The device: auto, cpu, cuda, opencl.", rich_help_panel=_PANEL)
]
Preset = Annotated[Mode, typer.Option(help="The preset of default sizes.", rich_help_panel=_PANEL)]
Quantization = Annotated[
    str | None,
    typer.Option(
        help="q4f16_1, w4a8, w8a8, q8_0, q0f16, q0bf16 or q0f32, for a Hugging Face directory.",
        rich_help_panel=_PANEL,
    ),
]
KVCacheDtype = Annotated[
    str,
    typer.Option(
        help="The KV cache's dtype: auto, float16, bfloat16, float32, int8 or int4.",
        rich_help_panel=_PANEL,
    ),
]
Shards = Annotated[
    int | None,
    typer.Option(
        help="Processes that share each layer, such as one per socket.", rich_help_panel=_PANEL
    ),
]
Overrides = Annotated[
    str,
    typer.Option(help="Settings: 'num_threads=4;max_num_sequence=8'.", rich_help_panel=_PANEL),
]
# Of the tools.
HuggingFaceModel = Annotated[
    str,
    typer.Argument(
        help="A Hugging Face directory, its config.json, or a repository.", metavar="MODEL"
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")]
Architecture = Annotated[str, typer.Option(help="The architecture.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")]


def one_model(argument: str | None, option: str | None) -> str | None:
    """Return the model, which may be given as an argument or as an option.

    Raises:
        CommandError: If both are given.
    """
    if argument is not None and option is not None:
        raise CommandError("give the model as an argument or by --model, not both")

    return option if argument is None else argument
