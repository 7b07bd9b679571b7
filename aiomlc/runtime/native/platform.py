"""The processor that the native library runs on."""

from __future__ import annotations

__all__ = ("check_platform", "physical_cores")

import functools
import logging

from aiomlc.errors import BadRequestError
from aiomlc.runtime.native.library import native_function

_LOG = logging.getLogger("aiomlc")


def physical_cores() -> int:
    """Return the number of physical cores that this process may use."""
    return int(native_function("aiomlc.physical_cores")())


@functools.cache
def check_platform() -> None:
    """Check the instruction set of the kernels, and warn if AMX cannot be used for all formats.

    Raises:
        BadRequestError: If `AIOMLC_ISA` has an unknown value.
    """
    try:
        native_function("aiomlc.active_isa")()
    except BadRequestError as error:
        raise BadRequestError(str(error), param="AIOMLC_ISA") from None

    for weight_format in native_function("aiomlc.rejected_amx_formats")():
        _LOG.warning(
            "AMX computes %s weights wrongly on this machine; AVX-512 is used instead",
            weight_format,
        )
