"""The previous name of `aiomlc.api.json_ffi.functions`, kept for programs that import it."""

from aiomlc.api.json_ffi import functions as functions
