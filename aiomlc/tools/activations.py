"""The mean squared activations of a model on a calibration text, by matrix and input."""

from __future__ import annotations

__all__ = ("Importance", "check_calibration", "measure_importance")

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from anyio import TemporaryDirectory, open_file, to_thread
from numpy.typing import NDArray

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.models import DecoderConfig, ModelConfig, Parameter
from aiomlc.tools.source_model import SourceModel
from aiomlc.validation.arguments import check_path
from aiomlc.workers.process import read_messages, worker_process

Importance = Mapping[str, NDArray[np.float32]]
"""Factors of the squared errors of each input, by the matrix."""

_WORKER: Final = "aiomlc.tools.activations_process"
_MAX_BYTES: Final = 1 << 26
_STDERR_LINES: Final = 20


def check_calibration(
    calibration: object, source: object, model_type: str, *, search: bool
) -> None:
    """Check the option and those that it depends on.

    Raises:
        BadRequestError: If one is invalid.
    """
    check_path("calibration", calibration)
    if not search:
        raise BadRequestError("calibration needs search", param="calibration")

    if source != "auto" or model_type != "auto":
        problem = "calibration opens the model, and so does not support source and model_type"
        raise BadRequestError(problem, param="calibration")


async def measure_importance(calibration: Path, directory: Path, model: SourceModel) -> Importance:
    """Return the mean squares of the inputs of every matrix, relative to their mean over the
    inputs, `[inputs]`, by its name in an MLC directory.

    The model is computed with weights of 16 bits in a subprocess, in which the kernel of linear
    layers also records what it reads.

    Args:
        calibration: A text: UTF-8, one passage per line.

    Raises:
        BadRequestError: If the text cannot be used, or the activations cannot be measured.
        ModelLoadError: If the model cannot be opened.
    """
    text = await to_thread.run_sync(_read_text, calibration, model.config)
    async with TemporaryDirectory() as name:
        temporary = Path(name)
        job, output = temporary / "job.json", temporary / "activations.npz"
        fields = {"model": str(directory), "text": text, "output": str(output)}
        await to_thread.run_sync(job.write_text, json.dumps(fields), "utf-8")
        await _run(job, temporary / "stderr")
        importance = await to_thread.run_sync(_load, output)
    return _by_output(importance, model.parameters)


def _read_text(path: Path, config: ModelConfig) -> str:
    if not isinstance(config, DecoderConfig) or config.has_experts:
        kind = "encoders" if config.kind == "encoder" else "mixtures of experts"
        raise BadRequestError(f"calibration does not support {kind}", param="calibration")

    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(
            f"calibration: cannot read {path}: {error}", param="calibration"
        ) from None

    if len(content) > _MAX_BYTES or not text.strip():
        problem = "is empty" if not text.strip() else f"has more than {_MAX_BYTES} bytes"
        raise BadRequestError(f"calibration: {path} {problem}", param="calibration")

    return text


def _by_output(importance: Importance, parameters: Sequence[Parameter]) -> Importance:
    """Return the importance by the names of the matrices that an MLC directory has, where a matrix
    of the graph may be several."""
    return {
        part: importance[name]
        for parameter in parameters
        if (name := parameter.mlc_name or parameter.name) in importance
        for part in parameter.mlc_parts or (name,)
    }


async def _run(job: Path, errors: Path) -> None:
    failure: dict[str, Any] = {}
    async with (
        await open_file(errors, "wb") as stderr,
        worker_process(_WORKER, str(job), stderr.wrapped) as process,
    ):
        await read_messages(process, failure.update)
        status = await process.wait()
    if status == 0:
        return

    stderr_text = await to_thread.run_sync(errors.read_text, "utf-8", "replace")
    tail = "\n".join(stderr_text.splitlines()[-_STDERR_LINES:])
    reason = failure.get("error", f"exit status {status}\n{tail}")
    raise ModelLoadError(f"the activations cannot be measured: {reason}")


def _load(path: Path) -> Importance:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}
