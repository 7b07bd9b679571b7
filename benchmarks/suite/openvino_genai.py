"""OpenVINO GenAI's continuous batching on the CPU, with a model that optimum-intel exports."""

from __future__ import annotations

__all__ = ("is_installed", "make_contestant", "open_engine")

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.suite.contestant import Setup, UnavailableError
from benchmarks.suite.generate import Generate
from benchmarks.suite.offline import OfflineContestant, Program
from benchmarks.suite.rival_process import has_package

_WEIGHTS = {"q4f16_1": "int4", "q0bf16": "fp16", "q0f32": "fp16"}
_EXPORT = {"int4": ("--group-size", "128", "--ratio", "1.0", "--sym"), "fp16": ()}
_CACHE_GIGABYTES = 2
_END = 2


def is_installed(python: Path) -> bool:
    return has_package(python, "openvino_genai")


def make_contestant(setup: Setup, python: Path) -> OfflineContestant:
    """Raises `UnavailableError` where the package, or what exports the model, is missing."""
    if not is_installed(python):
        raise UnavailableError(f"{python} has no openvino-genai")

    weights = _WEIGHTS[setup.quantization]
    model = _export(setup.model, weights, python)
    return OfflineContestant(
        f"OpenVINO {weights}", Program("openvino", python, model, setup.threads)
    )


def open_engine(model: Path, threads: int) -> Generate:
    """In the rival's process: raises `RuntimeError` where an answer is not as long as asked."""
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
        config.set_eos_token_id(_END)  # There has to be one, also where it is ignored.
        config.ignore_eos = True
        config.do_sample = False
        inputs = [openvino.Tensor(numpy.array([ids], dtype=numpy.int64)) for ids in prompts]
        results = pipeline.generate(inputs, [config] * len(prompts))
        lengths = {len(ids) for result in results for ids in result.m_generation_ids}
        if lengths != {tokens}:
            raise RuntimeError(f"{tokens} tokens were asked for, the answers have {lengths}")

    return generate


def _export(model: Path, weights: str, python: Path) -> Path:
    """Done once."""
    folder = model.with_name(f"{model.name}-openvino-{weights}")
    if (folder / "openvino_model.xml").is_file():
        return folder

    tool = python.with_name("optimum-cli")
    if not tool.is_file():
        raise UnavailableError(f"{tool} is missing to make {folder}: pip install optimum-intel")

    # What another run may have begun is no model.
    shutil.rmtree(folder, ignore_errors=True)
    command: list[str | Path] = [tool, "export", "openvino", "--model", model]
    command += ["--task", "text-generation-with-past", "--weight-format", weights]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [*command, *_EXPORT[weights], folder], check=True, stdout=sys.stderr, env=environment
    )
    return folder
