"""The command `aiomlc show`."""

from __future__ import annotations

__all__ = ("show",)

import json
from typing import Annotated

import typer

from aiomlc.cli.options.common import Debug, Model, NamedModel, one_model
from aiomlc.cli.terminal.failures import CommandError, report_failures


def show(
    model: Model = None,
    *,
    named_model: NamedModel = None,
    template: Annotated[bool, typer.Option(help="Print the chat template alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Show what a model's files say of it.

    Its size, context, chat template and license.
    """
    with report_failures(debug=debug):
        # Imported here because the imports would slow down --help.
        from aiomlc.cli.chat.model_summary import format_summary, summarize_model
        from aiomlc.runtime.loading.model_directory import find_model

        summary = summarize_model(find_model(one_model(model, named_model)))
        if template:
            if summary.get("chat_template") is None:
                raise CommandError(f"{summary['name']} has no chat template")

            typer.echo(summary["chat_template"])
        else:
            typer.echo(json.dumps(summary, indent=2) if as_json else format_summary(summary))
