"""MLC LLM's format of the log."""

import logging
import os


def enable_logging() -> None:
    """Write the log to standard error."""
    if not os.getenv("MLC_UNSET_LOGGING"):
        logging.basicConfig(
            level=logging.INFO,
            style="{",
            datefmt="%Y-%m-%d %H:%M:%S",
            format="[{asctime}] {levelname} {filename}:{lineno}: {message}",
        )


getLogger = logging.getLogger  # noqa: N816 - MLC LLM's name.
