"""The command `aiomlc batch`."""

from __future__ import annotations

__all__ = ("batch",)

from pathlib import Path
from typing import Annotated, Literal

import typer

from aiomlc.cli.options.common import Debug, Model, NamedModel, Preset, one_model
from aiomlc.cli.options.overrides import ModelOptions
from aiomlc.cli.options.records import takes_options
from aiomlc.cli.terminal.failures import CommandError, report_failures


@takes_options
def batch(  # noqa: PLR0913 - one parameter per option.
    requests: Annotated[
        Path, typer.Argument(metavar="REQUESTS", help="Requests in OpenAI's batch format.")
    ],
    answers: Annotated[Path, typer.Argument(metavar="ANSWERS", help="Where answers are appended.")],
    model: Model = None,
    *,
    named_model: NamedModel = None,
    embedding_model: Annotated[
        str | None, typer.Option(help="An encoder; requests then name their model.")
    ] = None,
    max_in_flight: Annotated[
        int | None, typer.Option(help="Concurrent requests; by default 64.", min=1)
    ] = None,
    engine: ModelOptions,
    mode: Preset = "local",
    max_num_sequence: Annotated[int | None, typer.Option(help="The maximum batch size.")] = None,
    backend: Annotated[Literal["asyncio", "trio"], typer.Option(help="The event loop.")] = (
        "asyncio"
    ),
    debug: Debug = False,
) -> None:
    """Answer a file of requests, or the rest of it."""
    with report_failures(debug=debug):
        config = engine.config(mode=mode, max_num_sequence=max_num_sequence)
        try:
            # Imported here because the import of the engine would slow down --help.
            from aiomlc.cli.jobs.batch import BatchSettings, run_batch_process
        except ModuleNotFoundError as error:
            if error.name != "starlette":
                raise

            raise CommandError(
                "the package starlette is missing: pip install 'aiomlc[serve]'"
            ) from error

        code = run_batch_process(
            BatchSettings(
                requests=requests,
                answers=answers,
                model=one_model(model, named_model),
                embedding_model=embedding_model,
                max_in_flight=max_in_flight,
                device=engine.device,
                config=config,
                backend=backend,
            )
        )
        if code:
            raise typer.Exit(code)
