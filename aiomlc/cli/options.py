"""Arguments and options that several commands have."""

from __future__ import annotations

__all__ = ("Debug", "KVCacheDtype", "Model", "Quantization")

from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Argument(help="The model's directory; by default the bundled model.", metavar="MODEL"),
]
Quantization = Annotated[
    str | None, typer.Option(help="q4f16_1, q0bf16 or q0f32, for a Hugging Face directory.")
]
KVCacheDtype = Annotated[
    str, typer.Option(help="The KV cache's dtype: auto, float16, float32 or int8.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")]
