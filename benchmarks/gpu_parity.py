"""Logits of tiny models of every family on a device, beside those of transformers.

Each model runs in a process of its own: a kernel that fails may end the use of a device by its
process. The references are those of the tests, which transformers has computed in float32.
"""

from __future__ import annotations

__all__ = ("CASES", "Parity", "check_parity")

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from aiomlc import EngineConfig
from aiomlc.errors import AiomlcError
from benchmarks.native_model import open_native_model
from tests.model.device_logits import PARITY_CASES, largest_error
from tests.model.tiny_models import write_model

TOLERANCE: Final = 1e-3
CASES: Final = PARITY_CASES
_SECONDS: Final = 600.0
_ROOT: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Parity:
    """The logits of a tiny model beside those of transformers."""

    model: str
    quantization: str
    error: float | None  #: The largest; None if the device does not compute them.
    problem: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether the logits differ, or there are none: every device has every family."""
        return self.error is None or not self.error <= TOLERANCE


def check_parity(device: str, cases: Iterable[tuple[str, str]] = CASES) -> Iterator[Parity]:
    """Yield the largest error of each model and quantization."""
    for model, quantization in cases:
        command = [sys.executable, "-m", __name__, device, model, quantization]
        try:
            done = subprocess.run(
                command, cwd=_ROOT, capture_output=True, check=False, text=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            yield Parity(model, quantization, None, f"no answer within {_SECONDS:g} seconds")
            continue

        if done.returncode == 0:
            yield Parity(model, quantization, **json.loads(done.stdout.splitlines()[-1]))
        else:
            last = "".join(done.stderr.strip().splitlines()[-1:])
            yield Parity(model, quantization, None, f"exit status {done.returncode}: {last}")


def _measure(device: str, model: str, quantization: str) -> float:
    config = EngineConfig(quantization=quantization, kv_cache_dtype="float32")
    with tempfile.TemporaryDirectory() as directory:
        opened = open_native_model(write_model(Path(directory), model), config, device)
        return largest_error(opened.native, model, quantization)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the error of a model as JSON, or why the device refuses it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("device", "model", "quantization"):
        parser.add_argument(name)
    options = parser.parse_args(arguments)
    try:
        error = _measure(options.device, options.model, options.quantization)
    except AiomlcError as refusal:
        print(json.dumps({"error": None, "problem": str(refusal).partition("\n")[0]}))
    else:
        # NaN is not JSON, but Python's `json` reads it.
        print(json.dumps({"error": float(np.float64(error))}))


if __name__ == "__main__":
    main()
