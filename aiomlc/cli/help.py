"""The help of a command with many options."""

from __future__ import annotations

__all__ = ("GroupedCommand",)

from typing import Any, final

from typer.core import TyperArgument, TyperCommand


@final
class GroupedCommand(TyperCommand):
    """A command whose options are listed in the panels that they name."""

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
