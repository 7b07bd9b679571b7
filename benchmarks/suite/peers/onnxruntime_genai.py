"""ONNX Runtime GenAI on the CPU, with a model that its own builder makes."""

from __future__ import annotations

__all__ = ("is_installed", "make_peer", "open_engine")

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.suite.measured_engine import Setup, UnavailableError
from benchmarks.suite.peers.generate import Generate
from benchmarks.suite.peers.offline_peer import OfflinePeer, PeerProgram
from benchmarks.suite.peers.peer_process import has_package

_PRECISIONS = {"q4f16_1": "int4", "q0f32": "fp32"}
# The activations of int4 matrices are rounded to int8, which is its fastest way on a CPU.
_BUILDER_OPTIONS = {
    "int4": ("int4_accuracy_level=4", "int4_block_size=32", "int4_is_symmetric=true"),
    "fp32": (),
}
_BUILDER = "onnxruntime_genai.models.builder"
_CONFIG = "genai_config.json"
_EOS_TOKEN_ID = 2


def is_installed(python: Path) -> bool:
    return has_package(python, "onnxruntime_genai")


def make_peer(setup: Setup, python: Path) -> OfflinePeer:
    """Build the model and start ONNX Runtime GenAI.

    Raises:
        UnavailableError: If onnxruntime-genai is missing, or has no similar quantization.
    """
    if not is_installed(python):
        raise UnavailableError(f"{python} does not have the package onnxruntime-genai")

    precision = _PRECISIONS.get(setup.quantization)
    if precision is None:
        problem = f"ONNX Runtime GenAI has no type on CPUs similar to {setup.quantization!r}"
        raise UnavailableError(problem)

    model = _build(setup.model, precision, python)
    program = PeerProgram("onnxruntime", python, model, setup.threads)
    return OfflinePeer(f"ONNX Runtime {precision}", program)


def open_engine(model: Path, threads: int) -> Generate:
    """Open the model in the peer's process.

    The returned function raises `RuntimeError` if an output has another length than requested.
    """
    numpy = importlib.import_module("numpy")
    genai = importlib.import_module("onnxruntime_genai")
    config = genai.Config(str(model))
    options = {"intra_op_num_threads": threads}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    network = genai.Model(config)

    def generate(prompts: Sequence[Sequence[int]], tokens: int) -> None:
        # All prompts of a call have the same length, so none is padded.
        inputs = numpy.array(prompts, dtype=numpy.int32)
        length = inputs.shape[1] + tokens
        params = genai.GeneratorParams(network)
        params.set_search_options(
            batch_size=len(prompts), max_length=length, min_length=length, do_sample=False
        )
        generator = genai.Generator(network, params)
        generator.append_tokens(inputs)
        while not generator.is_done():
            generator.generate_next_token()

        lengths = {len(generator.get_sequence(index)) for index in range(len(prompts))}
        if lengths != {length}:
            raise RuntimeError(f"expected sequences of {length} tokens, got lengths {lengths}")

    return generate


def _build(model: Path, precision: str, python: Path) -> Path:
    """Build the ONNX model once, and return its directory."""
    directory = model.with_name(f"{model.name}-onnxruntime-{precision}")
    if (directory / _CONFIG).is_file():
        return directory

    # Remove what an interrupted build left.
    shutil.rmtree(directory, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
        source, target = Path(temporary) / "source", Path(temporary) / "target"
        _write_source(model, source)
        command: list[str | Path] = [python, "-m", _BUILDER, "-i", source, "-o", target]
        command += ["-e", "cpu", "-p", precision, "-c", Path(temporary) / "cache"]
        if options := _BUILDER_OPTIONS[precision]:
            command += ["--extra_options", *options]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        subprocess.run(command, check=True, stdout=sys.stderr, env=environment)
        target.rename(directory)
    return directory


def _write_source(model: Path, source: Path) -> None:
    """Link to the model's files, with an end token: the builder does not take a model without."""
    source.mkdir()
    for file in model.iterdir():
        (source / file.name).symlink_to(file.absolute())
    config = json.loads((model / "config.json").read_bytes())
    (source / "config.json").unlink()
    changed = {**config, "eos_token_id": _EOS_TOKEN_ID}
    (source / "config.json").write_text(json.dumps(changed), encoding="utf-8")
