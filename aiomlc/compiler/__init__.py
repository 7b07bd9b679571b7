"""The compiler: turns a model's config into a compiled library.

Compilation runs in a subprocess; the parent process never imports tvm.
"""

from __future__ import annotations

from aiomlc.compiler.backends.registry import backend_of
from aiomlc.compiler.compile import OnProgress, compile_model
from aiomlc.compiler.interface import Backend
from aiomlc.compiler.job import CompiledLibrary, CompileJob, CompileProgress, LibraryMetadata
from aiomlc.compiler.library_file import is_foreign_library, read_library, write_library
from aiomlc.compiler.quantization import QUANTIZATIONS

__all__ = (
    "QUANTIZATIONS",
    "Backend",
    "CompileJob",
    "CompileProgress",
    "CompiledLibrary",
    "LibraryMetadata",
    "OnProgress",
    "backend_of",
    "compile_model",
    "is_foreign_library",
    "read_library",
    "write_library",
)
