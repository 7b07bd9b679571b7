"""lm-evaluation-harness' `local-completions` against the server."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

from aiomlc import MLCEngine
from aiomlc.config import BUNDLED_MODEL
from tests.e2e.framework_questions import CAPITAL, MODEL
from tests.e2e.serve_process import ServerProcess

pytestmark = pytest.mark.timeout(240)
CHAT = f"<|im_start|>user\n{CAPITAL}<|im_end|>\n<|im_start|>assistant\n"
#: Context and continuation; after some of them, the most likely token is the end token.
PAIRS = [
    (CHAT, "The capital of Italy is Rome."),
    (CHAT, "The capital of Italy is Paris."),
    (CHAT, "The capital of"),
    (CHAT, "No"),
    ("Once upon a", " time there was"),
    ("", CHAT),
]


def _requests(kind: str, arguments: Sequence[tuple[object, ...]]) -> list[Instance]:
    return [
        Instance(request_type=kind, doc={}, arguments=pair, idx=index)
        for index, pair in enumerate(arguments)
    ]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_loglikelihoods_are_those_of_the_model(server: ServerProcess, batch_size: int) -> None:
    model = LocalCompletionsAPI(
        model=MODEL,
        base_url=f"{server.url}/v1/completions",
        tokenizer=str(BUNDLED_MODEL),
        tokenizer_backend="huggingface",
        max_length=1024,
        batch_size=batch_size,
    )

    scores = model.loglikelihood(_requests("loglikelihood", PAIRS), disable_tqdm=True)
    rolling = model.loglikelihood_rolling(
        _requests("loglikelihood_rolling", [(CHAT,)]), disable_tqdm=True
    )
    until = {"until": ["<|im_end|>"], "max_gen_toks": 20}
    answers = model.generate_until(_requests("generate_until", [(CHAT, until)]), disable_tqdm=True)

    with MLCEngine() as engine:
        encode = engine.tokenizer.encode
        for (context, continuation), (logprob, is_greedy) in zip(PAIRS, scores, strict=True):
            before = encode(context) or [model.prefix_token_id]
            tokens = [*before, *encode(context + continuation)[len(encode(context)) :]]
            completion = engine.completions.create(
                prompt=tokens, echo=True, logprobs=1, max_tokens=0
            )
            lists = completion.choices[0].logprobs
            assert lists is not None
            own = [value for value in lists.token_logprobs[len(before) :] if value is not None]
            best = [max(top.values()) for top in lists.top_logprobs[len(before) :] if top]
            assert math.isclose(logprob, sum(own), abs_tol=1e-4)
            assert is_greedy == (own == best)

    assert [scores[0][1], scores[1][1]] == [True, False]
    assert math.isclose(rolling[0], scores[-1][0], abs_tol=1e-4)
    assert "Rome" in answers[0]
    assert len(list(itertools.chain(scores, rolling, answers))) == len(PAIRS) + 2
