"""The `aiomlc` program: its commands and its version."""

from __future__ import annotations

__all__ = ("app", "main")

import importlib.metadata
import platform
import signal
import sys
from typing import Annotated

import typer

from aiomlc.cli.commands.batch import batch
from aiomlc.cli.commands.bench import bench
from aiomlc.cli.commands.cache import cache_app
from aiomlc.cli.commands.chat import chat
from aiomlc.cli.commands.compile import compile_
from aiomlc.cli.commands.convert import convert
from aiomlc.cli.commands.doctor import doctor
from aiomlc.cli.commands.gen_config import gen_config
from aiomlc.cli.commands.models import list_, pull, rm
from aiomlc.cli.commands.plan import plan
from aiomlc.cli.commands.serve import serve
from aiomlc.cli.commands.show import show
from aiomlc.cli.help import GroupedCommand, ProgramGroup
from aiomlc.cli.terminal.failures import exit_code_of
from aiomlc.cli.terminal.standard_streams import discard_output, prepare_streams, set_sigpipe_action
from aiomlc.errors import AiomlcError

app: typer.Typer = typer.Typer(
    name="aiomlc",
    cls=ProgramGroup,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Its tables cut long names off in a narrow terminal.
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=GroupedCommand, context_settings={"allow_extra_args": True})(chat)
app.command(cls=GroupedCommand)(serve)
app.command(cls=GroupedCommand)(batch)
app.command(cls=GroupedCommand)(plan)
app.command()(show)
app.command("compile")(compile_)
app.command()(convert)
app.command("convert_weight", hidden=True)(convert)  # MLC LLM's name.
app.command("gen-config")(gen_config)
app.command("gen_config", hidden=True)(gen_config)
app.command()(pull)
app.command("list")(list_)
app.command()(rm)
app.command(cls=GroupedCommand)(bench)
app.command()(doctor)
app.add_typer(cache_app, name="cache")


def main() -> None:
    """Run the command line and exit the process with its exit code."""
    try:
        prepare_streams()
        set_sigpipe_action(signal.SIG_DFL)
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:  # Of an output outside of a command: the help, or the last flush.
        if isinstance(error, AiomlcError):  # With --debug.
            raise

        discard_output()
        sys.exit(exit_code_of(error))


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"aiomlc {importlib.metadata.version('aiomlc')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
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
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def version() -> None:
    """Print the versions to include in a bug report."""
    typer.echo(f"aiomlc {importlib.metadata.version('aiomlc')}")
    for package in ("apache-tvm", "apache-tvm-ffi", "anyio", "tokenizers"):
        typer.echo(f"{package} {importlib.metadata.version(package)}")

    typer.echo(f"Python {platform.python_version()} on {platform.platform()}")
