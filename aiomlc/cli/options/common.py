"""Arguments and options that several commands have."""

from __future__ import annotations

__all__ = ("Debug", "KVCacheDtype", "Model", "NamedModel", "Quantization", "one_model")

from typing import Annotated

import typer

from aiomlc.cli.terminal.failures import CommandError

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
Quantization = Annotated[
    str | None, typer.Option(help="q4f16_1, q0f16, q0bf16 or q0f32, for a Hugging Face directory.")
]
KVCacheDtype = Annotated[
    str, typer.Option(help="The KV cache's dtype: auto, float16, float32 or int8.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")]


def one_model(argument: str | None, option: str | None) -> str | None:
    """Return the model, which may be given as an argument or as an option.

    Raises:
        CommandError: If both are given.
    """
    if argument is not None and option is not None:
        raise CommandError("give the model as an argument or by --model, not both")

    return option if argument is None else argument
