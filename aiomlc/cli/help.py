"""The help of a command with many options, and of names that other programs have."""

from __future__ import annotations

__all__ = ("GroupedCommand", "ProgramGroup")

from collections.abc import Mapping
from typing import Any, final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

# What a command of another program does here.
_OTHERS: Mapping[str, str] = {
    "run": "chat",
    "generate": "chat -p",
    "ps": "list",
    "ls": "list",
    "models": "list",
    "remove": "rm",
    "download": "pull",
    "info": "show",
    "create": "convert",
    "quantize": "convert",
    "help": "--help",
}
_CONTEXT = 'use --overrides "context_window_size=N"'
# What an option of another program is here.
_OTHER_OPTIONS: Mapping[str, str] = {
    "--max-model-len": _CONTEXT,
    "--ctx-size": _CONTEXT,
    "--n-ctx": _CONTEXT,
    "--n_ctx": _CONTEXT,
    "--max-num-seqs": 'use --overrides "max_num_sequence=N"',
    "--gpu-memory-utilization": 'use --overrides "gpu_memory_utilization=X"',
    "--enable-prefix-caching": "leave it out, the prefix cache is on",
    "--threads": 'use --overrides "num_threads=N"',
    "--n_threads": 'use --overrides "num_threads=N"',
}


@final
class GroupedCommand(TyperCommand):
    """A command whose options are listed in the panels that they name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own click.
        """Parse the arguments; an option of another program is answered with what does it here."""
        known = {name for parameter in self.params for name in parameter.opts}
        for name in (argument.partition("=")[0] for argument in args):
            if name in _OTHER_OPTIONS and name not in known:
                ctx.fail(f"No such option {name}: {_OTHER_OPTIONS[name]}")

        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own click.
        """Write the arguments and the options."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = isinstance(parameter, TyperArgument)
                panel = getattr(parameter, "rich_help_panel", None)
                title = "Arguments" if is_argument else f"{panel} options" if panel else "Options"
                groups.setdefault(title, []).append(record)

        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


@final
class ProgramGroup(TyperGroup):
    """The commands of the program; one of another program is answered with what does it here."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's own click.
        """Return the command that the arguments name."""
        if self.get_command(ctx, args[0]) is None and args[0] in _OTHERS:
            ctx.fail(f"No such command {args[0]!r}: use aiomlc {_OTHERS[args[0]]}")

        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own click.
        """Run the command; the error of an option is in plain words."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Imported here because the import would slow down --help.
            from aiomlc.validation.error_messages import plain_message

            error.message = plain_message(error.message)
            raise
