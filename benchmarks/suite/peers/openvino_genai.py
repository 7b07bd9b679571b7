"""OpenVINO GenAI's continuous batching on the CPU, with a model exported by optimum-intel."""

from __future__ import annotations

__all__ = ("is_installed", "make_peer", "open_engine")

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.suite.measured_engine import Setup, UnavailableError
from benchmarks.suite.peers.generate import Generate
from benchmarks.suite.peers.offline_peer import OfflinePeer, PeerProgram
from benchmarks.suite.peers.peer_process import has_package

_WEIGHT_FORMATS = {"q4f16_1": "int4", "q0bf16": "fp16", "q0f32": "fp16"}
_EXPORT_OPTIONS = {"int4": ("--group-size", "128", "--ratio", "1.0", "--sym"), "fp16": ()}
_CACHE_GIGABYTES = 2
_EOS_TOKEN_ID = 2


def is_installed(python: Path) -> bool:
    return has_package(python, "openvino_genai")


def make_peer(setup: Setup, python: Path) -> OfflinePeer:
    """Export the model and start OpenVINO GenAI.

    Raises:
        UnavailableError: If openvino-genai or optimum-cli is missing.
    """
    if not is_installed(python):
        raise UnavailableError(f"{python} does not have the package openvino-genai")

    weight_format = _WEIGHT_FORMATS[setup.quantization]
    model = _export(setup.model, weight_format, python)
    program = PeerProgram("openvino", python, model, setup.threads)
    return OfflinePeer(f"OpenVINO {weight_format}", program)


def open_engine(model: Path, threads: int) -> Generate:
    """Open the model in the peer's process.

    The returned function raises `RuntimeError` if an output has another length than requested.
    """
    numpy = importlib.import_module("numpy")
    openvino = importlib.import_module("openvino")
    genai = importlib.import_module("openvino_genai")
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = _CACHE_GIGABYTES
    scheduler.enable_prefix_caching = False
    pipeline = genai.ContinuousBatchingPipeline(
        str(model), scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}, {}
    )

    def generate(prompts: Sequence[Sequence[int]], tokens: int) -> None:
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = tokens
        config.set_eos_token_id(_EOS_TOKEN_ID)  # Required even with `ignore_eos`.
        config.ignore_eos = True
        config.do_sample = False
        inputs = [openvino.Tensor(numpy.array([ids], dtype=numpy.int64)) for ids in prompts]
        results = pipeline.generate(inputs, [config] * len(prompts))
        lengths = {len(ids) for result in results for ids in result.m_generation_ids}
        if lengths != {tokens}:
            raise RuntimeError(f"expected outputs of {tokens} tokens, got lengths {lengths}")

    return generate


def _export(model: Path, weight_format: str, python: Path) -> Path:
    """Export the model once, and return the directory of the export."""
    directory = model.with_name(f"{model.name}-openvino-{weight_format}")
    if (directory / "openvino_model.xml").is_file():
        return directory

    tool = python.with_name("optimum-cli")
    if not tool.is_file():
        raise UnavailableError(f"{tool} is missing to make {directory}: pip install optimum-intel")

    # Remove what an interrupted export left.
    shutil.rmtree(directory, ignore_errors=True)
    command: list[str | Path] = [tool, "export", "openvino", "--model", model]
    command += ["--task", "text-generation-with-past", "--weight-format", weight_format]
    command += [*_EXPORT_OPTIONS[weight_format], directory]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, check=True, stdout=sys.stderr, env=environment)
    return directory
