"""The command `aiomlc plan`."""

from __future__ import annotations

__all__ = ("plan",)

from functools import partial
from typing import Annotated

import typer

from aiomlc.cli.options.common import Debug, Model, NamedModel, Preset, one_model
from aiomlc.cli.options.overrides import ModelOptions
from aiomlc.cli.options.records import takes_options
from aiomlc.cli.terminal.failures import report_failures


@takes_options
def plan(  # noqa: PLR0913 - one parameter per option.
    model: Model = None,
    *,
    named_model: NamedModel = None,
    engine: ModelOptions,
    mode: Preset = "local",
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
    debug: Debug = False,
) -> None:
    """Print a model's memory plan without loading the model."""
    with report_failures(debug=debug):
        # Imported here because the imports would slow down --help.
        from aiomlc.api.engines.planning import plan_memory

        config = engine.config(
            mode=mode,
            max_num_sequence=max_num_sequence,
            max_total_sequence_length=max_total_sequence_length,
            max_single_sequence_length=max_single_sequence_length,
            gpu_memory_utilization=gpu_memory_utilization,
        )
        model = one_model(model, named_model)
        if model is not None:
            _download(model)
        typer.echo(plan_memory(model, engine.device, mode=mode, engine_config=config))


def _download(model: str) -> None:
    """Download a model that is a repository of the hub, unless it is cached."""
    from aiomlc.cli.terminal.progress import run_with_progress
    from aiomlc.runtime.loading.model_directory import fetch_model

    run_with_progress(partial(fetch_model, model))
