"""The processor that the native library runs on."""

from __future__ import annotations

__all__ = ("active_isa", "check_platform", "physical_cores")

import functools
import logging

from aiomlc.errors import BadRequestError
from aiomlc.runtime.native.library import native_function

_LOG = logging.getLogger("aiomlc")


def physical_cores() -> int:
    """Return the number of physical cores that this process may use."""
    return int(native_function("aiomlc.physical_cores")())


def active_isa() -> str:
    """Return the name of the tier that kernels run on.

    Raises:
        BadRequestError: If `AIOMLC_ISA` has an unknown value.
    """
    try:
        return str(native_function("aiomlc.active_isa")())
    except BadRequestError as error:
        raise BadRequestError(str(error), param="AIOMLC_ISA") from None


@functools.cache
def check_platform() -> None:
    """Check the instruction set of the kernels, and warn if AMX cannot be used for all formats.

    Raises:
        BadRequestError: If `AIOMLC_ISA` has an unknown value.
    """
    active_isa()
    for weight_format in native_function("aiomlc.rejected_amx_formats")():
        _LOG.warning(
            "AMX computes %s weights wrongly on this machine; AVX-512 is used instead",
            weight_format,
        )
