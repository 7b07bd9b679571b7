"""Answers to prompts with images on an OpenCL device equal those of transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.model.families.test_piece_logits import REFERENCE, answers, check, open_core
from tests.model.tiny_pieces import MODELS, PROMPTS, write_model

TOLERANCE = 1e-3

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("opencl", "model_cache")]


@pytest.mark.parametrize("name", MODELS)
def test_answers_equal_transformers_alone_in_a_batch_and_after_hits_of_the_prefix_cache(
    tmp_path: Path, name: str
) -> None:
    with np.load(REFERENCE / f"pieces_{name}.npz") as stored:
        tokens, logprobs = stored["tokens"], stored["logprobs"]
    core = open_core(write_model(tmp_path, name), 64, "opencl")

    results = [[answers(core, name, [prompt])[0] for prompt in PROMPTS]]
    core.reset()
    results.append(answers(core, name, PROMPTS))
    results.append(answers(core, name, PROMPTS))
    core.close()
    core.release()

    for result in results:
        check(result, tokens, logprobs, TOLERANCE)
    assert all(cached > 0 for _, _, cached in results[-1])
