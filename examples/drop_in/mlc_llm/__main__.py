"""`python -m mlc_llm COMMAND ...`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

_COMMANDS = ("chat", "compile", "convert_weight", "gen_config", "serve")
_MISSING = ("calibrate", "package", "router")


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser("mlc_llm")
    parser.add_argument("command", choices=[*_COMMANDS, *_MISSING], metavar="|".join(_COMMANDS))
    command = parser.parse_args(sys.argv[1:2]).command
    import_module(f"mlc_llm.cli.{command}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
