"""The commands and their options; what they do is in the modules beside this one."""

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

_INTERRUPTED = 130  # What a shell reports for a process that SIGINT ended.


def main() -> None:
    """Run the command line and leave the process with its exit code."""
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
        str | None, typer.Argument(help="The question; without one, a conversation begins.")
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option(help="A model's directory; the bundled model if absent.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus sampling.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="The most tokens of an answer.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same answer.")] = None,
    quantization: Annotated[
        str | None, typer.Option(help="q4f16_1, q0bf16 or q0f32, for a Hugging Face directory.")
    ] = None,
    kv_cache_dtype: Annotated[
        str, typer.Option(help="auto, float16, float32 or int8: how keys and values are kept.")
    ] = "auto",
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Ask one question, or converse; the answer is streamed."""
    from aiomlc.cli.talk import ChatSettings, run_chat  # Loads the engine: not for --help.

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
        with _reported(debug=debug):
            run_chat(settings, prompt)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


@app.command()
def plan(  # noqa: PLR0913 - one parameter per option.
    model: Annotated[
        str | None, typer.Argument(help="A model's directory; the bundled model if absent.")
    ] = None,
    *,
    mode: Annotated[str, typer.Option(help="local, interactive or server.")] = "local",
    quantization: Annotated[
        str | None, typer.Option(help="q4f16_1, q0bf16 or q0f32, for a Hugging Face directory.")
    ] = None,
    kv_cache_dtype: Annotated[
        str, typer.Option(help="auto, float16, float32 or int8: how keys and values are kept.")
    ] = "auto",
    max_num_sequence: Annotated[int | None, typer.Option(help="Concurrent sequences.")] = None,
    max_total_sequence_length: Annotated[
        int | None, typer.Option(help="Tokens that the KV cache holds.")
    ] = None,
    max_single_sequence_length: Annotated[
        int | None, typer.Option(help="Prompt and completion of one sequence.")
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="Share of the free memory to plan with.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Print how much memory a model would take, and why. Nothing is loaded."""
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
    with _reported(debug=debug):
        config = EngineConfig(**fields)
        typer.echo(plan_memory(model, mode=config.mode or "local", engine_config=config))


@contextmanager
def _reported(*, debug: bool) -> Iterator[None]:
    """End the process with one line and the exit code of an error of ours."""
    try:
        yield
    except AiomlcError as error:
        if debug:
            raise

        typer.echo(f"aiomlc: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, RequestError) else 1) from error


@app.command()
def version() -> None:
    """Print the versions that matter in a bug report."""
    typer.echo(f"aiomlc {importlib.metadata.version('aiomlc')}")
    for package in ("apache-tvm", "apache-tvm-ffi", "anyio", "tokenizers"):
        typer.echo(f"{package} {importlib.metadata.version(package)}")

    typer.echo(f"Python {platform.python_version()} on {platform.platform()}")
