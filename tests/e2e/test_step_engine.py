from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from aiomlc import GenerationConfig, MLCEngine, SyncMLCEngine, TextData, TextStreamer
from aiomlc.api.step.data import RequestStreamOutput

QUESTIONS = ("Who are you?", "What is 12 plus 30?", "What is the capital of France?")
GREEDY = GenerationConfig(temperature=0, max_tokens=80)


def prompt(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def expected() -> list[str | None]:
    with MLCEngine() as engine:
        return [
            engine.chat.completions.create(
                messages=[{"role": "user", "content": question}], temperature=0, max_tokens=80
            )
            .choices[0]
            .message.content
            for question in QUESTIONS
        ]


def test_generate_says_what_the_other_engines_say() -> None:
    with SyncMLCEngine() as engine:
        texts, _ = engine.generate([prompt(question) for question in QUESTIONS], GREEDY)
        again, _ = engine.generate([engine.tokenizer.encode(prompt(QUESTIONS[0]))], GREEDY)

    assert [text for (text,) in texts] == expected()
    assert again == texts[:1]


def test_requests_that_arrive_while_others_run_get_the_same_answers() -> None:
    outputs: dict[str, list[int]] = defaultdict(list)
    finished: dict[str, str] = {}
    usages: dict[str, str | None] = {}  # The last of each request has it.

    def callback(batch: Sequence[RequestStreamOutput]) -> None:
        for output in batch:
            request_id, (single,) = output.unpack()
            usages[request_id] = single.request_final_usage_json_str
            outputs[request_id] += single.delta_token_ids
            if single.finish_reason is not None:
                finished[request_id] = single.finish_reason

    with SyncMLCEngine(request_stream_callback=callback) as engine:
        pages = engine.metrics()["kv_cache_free_pages"]
        for index, question in enumerate(QUESTIONS):
            data = TextData(prompt(question))
            engine.add_request(engine.create_request(str(index), data, GREEDY))
            engine.add_request(engine.create_request(f"left {index}", data, GREEDY))
            for _ in range(3):
                engine.step()
            engine.abort_request(f"left {index}")
        while engine.step():
            pass
        engine.add_request(engine.create_request("reset", TextData("Once"), GREEDY))
        engine.reset()

        assert engine.metrics()["kv_cache_free_pages"] == pages
        texts = []
        for index in range(len(QUESTIONS)):
            streamer = TextStreamer(engine.tokenizer)
            texts.append(streamer.put(outputs[str(index)]) + streamer.finish())

    assert texts == expected()
    assert {finished[str(index)] for index in range(3)} == {"stop"}
    assert {finished[f"left {index}"] for index in range(3)} == {"abort"}
    assert finished["reset"] == "abort"
    told = {request_id: json.loads(text or "") for request_id, text in usages.items()}
    assert told.keys() == finished.keys()
    assert [told[str(index)]["completion_tokens"] for index in range(3)] == [
        len(outputs[str(index)]) + 1  # The token that ends an answer is no part of it.
        for index in range(3)
    ]
    assert told["0"]["extra"]["ttft_s"] > 0


def test_json_is_enforced_by_hand_too() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    wanted = {"type": "json_object", "schema": {**schema, "additionalProperties": False}}
    config = GenerationConfig(response_format=wanted, temperature=1.0, seed=1, n=2)
    with SyncMLCEngine() as engine:
        texts, _ = engine.generate("Say something.", config)

    assert {json.loads(text)["a"] for text in texts[0]} <= {1, 2}


def test_prompts_are_scored_and_logits_processed_as_on_the_other_engines() -> None:
    asked = prompt(QUESTIONS[1])
    with MLCEngine() as other:
        answer = other.completions.create(
            prompt=asked, temperature=0, max_tokens=4, prompt_logprobs=2
        )

    expected = [entry for entry in answer.choices[0].prompt_logprobs or [] if entry is not None]

    def forbid(token_ids: Sequence[int], logits: NDArray[np.float32]) -> None:
        assert token_ids
        logits[digits] = -np.inf

    with SyncMLCEngine() as engine:
        describe = engine.tokenizer.describe
        digits = [
            one for one in range(engine.tokenizer.vocab_size) if describe(one)[0].strip().isdigit()
        ]
        scored = engine.generate(asked, replace(GREEDY, max_tokens=4, prompt_logprobs=2, n=2))
        plain, _ = engine.generate(asked, GREEDY)
        changed, _ = engine.generate(asked, replace(GREEDY, logits_processors=[forbid]))

    (told,) = scored.prompt_logprobs
    assert told is not None
    assert [json.loads(text)["logprob"] for text in told] == [entry.logprob for entry in expected]
    assert "42" in plain[0][0]
    assert not any(character.isdigit() for character in changed[0][0])
