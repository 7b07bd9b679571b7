"""The commands of the `aiomlc` program and their options."""

from __future__ import annotations

__all__ = ("app", "main")

import importlib.metadata
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from aiomlc.config import EngineConfig
from aiomlc.errors import AiomlcError, RequestError

app: typer.Typer = typer.Typer(
    name="aiomlc",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_INTERRUPTED = 130  # The exit code that shells report for a process ended by SIGINT.


def main() -> None:
    """Run the command line and exit the process with its exit code."""
    app()


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"aiomlc {importlib.metadata.version('aiomlc')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Run a large language model on this computer."""


@app.command()
def chat(  # noqa: PLR0913 - one parameter per option.
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; without it, start an interactive chat.")
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option(help="The model's directory; by default the bundled model.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy decoding.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus sampling.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="The maximum number of generated tokens.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The seed of the sampler, for reproducible output.")
    ] = None,
    quantization: Annotated[
        str | None, typer.Option(help="q4f16_1, q0bf16 or q0f32, for a Hugging Face directory.")
    ] = None,
    kv_cache_dtype: Annotated[
        str, typer.Option(help="The KV cache's dtype: auto, float16, float32 or int8.")
    ] = "auto",
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False,
) -> None:
    """Answer one prompt, or chat interactively; the output is streamed."""
    # Imported here because the import of the engine would slow down --help.
    from aiomlc.cli.terminal_chat import ChatSettings, run_chat

    options = {
        "temperature": temperature,
        "top_p": top_p,
        "max_tokens": max_tokens,
        "seed": seed,
    }
    settings = ChatSettings(
        model=model,
        engine={"quantization": quantization, "kv_cache_dtype": kv_cache_dtype},
        system=system,
        options={name: value for name, value in options.items() if value is not None},
    )
    try:
        with _report_errors(debug=debug):
            run_chat(settings, prompt)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


@app.command()
def plan(  # noqa: PLR0913 - one parameter per option.
    model: Annotated[
        str | None, typer.Argument(help="The model's directory; by default the bundled model.")
    ] = None,
    *,
    mode: Annotated[str, typer.Option(help="local, interactive or server.")] = "local",
    quantization: Annotated[
        str | None, typer.Option(help="q4f16_1, q0bf16 or q0f32, for a Hugging Face directory.")
    ] = None,
    kv_cache_dtype: Annotated[
        str, typer.Option(help="The KV cache's dtype: auto, float16, float32 or int8.")
    ] = "auto",
    max_num_sequence: Annotated[int | None, typer.Option(help="The maximum batch size.")] = None,
    max_total_sequence_length: Annotated[
        int | None, typer.Option(help="The KV cache's capacity in tokens.")
    ] = None,
    max_single_sequence_length: Annotated[
        int | None, typer.Option(help="The maximum length of a prompt with its completion.")
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="The fraction of the free memory to use.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False,
) -> None:
    """Print a model's memory plan without loading the model."""
    from aiomlc.api.engines.planning import plan_memory

    fields: dict[str, Any] = {
        "mode": mode,
        "quantization": quantization,
        "kv_cache_dtype": kv_cache_dtype,
        "max_num_sequence": max_num_sequence,
        "max_total_sequence_length": max_total_sequence_length,
        "max_single_sequence_length": max_single_sequence_length,
        "gpu_memory_utilization": gpu_memory_utilization,
    }
    with _report_errors(debug=debug):
        config = EngineConfig(**fields)
        typer.echo(plan_memory(model, mode=config.mode or "local", engine_config=config))


@contextmanager
def _report_errors(*, debug: bool) -> Iterator[None]:
    """Convert an error of the library to a one-line message and an exit code.

    The exit code is 2 for a RequestError and 1 for any other error.
    """
    try:
        yield
    except AiomlcError as error:
        if debug:
            raise

        typer.echo(f"aiomlc: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, RequestError) else 1) from error


@app.command()
def version() -> None:
    """Print the versions to include in a bug report."""
    typer.echo(f"aiomlc {importlib.metadata.version('aiomlc')}")
    for package in ("apache-tvm", "apache-tvm-ffi", "anyio", "tokenizers"):
        typer.echo(f"{package} {importlib.metadata.version(package)}")

    typer.echo(f"Python {platform.python_version()} on {platform.platform()}")
