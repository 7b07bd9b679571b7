"""The process that asks a driver for its devices, or tests one with the bundled model.

`python -m aiomlc.runtime.loading.device_check PARENT ARGUMENT`, where the argument is a kind of
devices (`cuda`, `opencl`) or a device (`opencl:1`). It writes one line of JSON: `devices`, or the
`problem` of the kind; `problem` of the device, None if its answers are right.
"""

from __future__ import annotations

__all__ = ("main",)

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

import anyio

from aiomlc.config import EngineConfig
from aiomlc.errors import AiomlcError
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import open_native
from aiomlc.runtime.loading.progress import ignore_progress
from aiomlc.runtime.native.cuda import cuda_reports
from aiomlc.runtime.native.device import DeviceReport
from aiomlc.runtime.native.opencl import opencl_reports
from aiomlc.workers.parent import end_with_parent, write_message

_REPORTS: Final[Mapping[str, Callable[[], list[DeviceReport]]]] = {
    "cuda": cuda_reports,
    "opencl": opencl_reports,
}
#: A small KV cache.
_CONFIG: Final = EngineConfig(max_total_sequence_length=256, max_single_sequence_length=128)


def main(arguments: Sequence[str]) -> None:
    """Write what a kind's driver or a device answers."""
    parent, asked = arguments
    end_with_parent(int(parent), lambda: None)
    try:
        if report := _REPORTS.get(asked):
            write_message(devices=[asdict(device) for device in report()], problem=None)
        else:
            _test(asked)
            write_message(problem=None)
    except AiomlcError as error:
        write_message(devices=[], problem=str(error))


def _test(device: str) -> None:
    """Open the bundled model, which tests a device that is not trusted."""
    anyio.run(
        open_native, ModelFacts(find_model(None)), device, "interactive", _CONFIG, ignore_progress
    )


if __name__ == "__main__":
    main(sys.argv[1:])
