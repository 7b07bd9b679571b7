"""Subprocesses of the library, which report by JSON lines and end with the process that uses them.

`process` is the side of the parent; `parent` that of the subprocess.
"""

from __future__ import annotations

__all__ = ()
