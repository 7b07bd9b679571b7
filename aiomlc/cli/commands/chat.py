"""The command `aiomlc chat`."""

from __future__ import annotations

__all__ = ("chat",)

import sys
from pathlib import Path
from typing import Annotated

import typer

from aiomlc.cli.options.common import Debug, Model, NamedModel, one_model
from aiomlc.cli.options.overrides import ModelOptions
from aiomlc.cli.options.records import takes_options
from aiomlc.cli.terminal.failures import CommandError, report_failures
from aiomlc.cli.terminal.status_line import StatusLine
from aiomlc.errors import ModelNotFoundError

_QUESTION = "the first argument is the model; give a question with -p"


@takes_options
def chat(  # noqa: PLR0913 - one parameter per option.
    context: typer.Context,
    model: Model = None,
    *,
    named_model: NamedModel = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="The prompt; - reads standard input.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy decoding.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus sampling.")] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Sample from this many of the likeliest tokens.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="The maximum number of generated tokens.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The seed of the sampler, for reproducible output.")
    ] = None,
    engine: ModelOptions,
    model_lib: Annotated[
        Path | None, typer.Option(help="A library that `aiomlc compile` has written.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Chat with a model, or answer one prompt."""
    options = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "max_tokens": max_tokens,
        "seed": seed,
    }
    with report_failures(debug=debug), StatusLine(sys.stderr) as status:
        status.show("starting aiomlc")
        # Imported here because the import of the engine would slow down --help.
        from aiomlc.cli.chat.terminal_chat import ChatSettings, run_chat

        if context.args:  # The words of a question, or one after the model.
            raise CommandError(_QUESTION)

        model = one_model(model, named_model)
        if model == "-":  # As of other programs; a prompt is needed more often than a model.
            model, prompt = None, prompt or "-"
        settings = ChatSettings(
            model=model,
            device=engine.device,
            engine=engine.config(model_lib=_existing(model_lib)),
            system=system,
            options={name: value for name, value in options.items() if value is not None},
        )
        try:
            run_chat(settings, prompt, status)
        except (ModelNotFoundError, CommandError) as error:
            if model is None or " " not in model:
                raise

            if isinstance(error, CommandError):
                raise CommandError(f"the prompt is empty: {_QUESTION}") from error

            message = f"{error}; {_QUESTION}"
            raise ModelNotFoundError(message, path=error.path, field=error.field) from error


def _existing(library: Path | None) -> str | None:
    if library is None or library.is_file():
        return None if library is None else str(library)

    raise ModelNotFoundError(f"cannot find the library {library}", path=library, field="model_lib")
