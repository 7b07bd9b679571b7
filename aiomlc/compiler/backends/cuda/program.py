"""Machine code of CUDA's kernels as the text that TVM stores in a library.

TVM stores the source of kernels, and its runtime asks a function to compile them when it loads the
library. Stored instead is the machine code, which that function only decodes.
"""

from __future__ import annotations

__all__ = ("Program", "decode_program", "encode_program")

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final

from aiomlc.errors import CompileError

_PREFIX: Final = "aiomlc cubin "


@dataclass(frozen=True, slots=True)
class Program:
    """Compiled kernels."""

    cubin: bytes = field(repr=False)  #: Machine code of one architecture, an ELF file.
    log: str = field(repr=False)  #: The compiler's output, with the resources of each kernel.


def encode_program(cubin: bytes) -> str:
    """Return machine code as text."""
    return _PREFIX + base64.b64encode(cubin).decode()


def decode_program(text: str) -> bytes:
    """Return the machine code of a text.

    Raises:
        CompileError: If it is another text, such as CUDA's C++.
    """
    if not text.startswith(_PREFIX):
        raise CompileError("the library has the source of kernels instead of machine code")

    try:
        return base64.b64decode(text[len(_PREFIX) :], validate=True)
    except binascii.Error as error:
        raise CompileError(f"the machine code of the library is damaged: {error}") from None
