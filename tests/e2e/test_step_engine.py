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


def expected_texts() -> list[str | None]:
    """Return the completions of the sync engine."""
    with MLCEngine() as engine:
        return [
            engine.chat.completions.create(
                messages=[{"role": "user", "content": question}], temperature=0, max_tokens=80
            )
            .choices[0]
            .message.content
            for question in QUESTIONS
        ]


def test_generate_has_the_output_of_the_sync_engine() -> None:
    with SyncMLCEngine() as engine:
        texts, _ = engine.generate([prompt(question) for question in QUESTIONS], GREEDY)
        again, _ = engine.generate([engine.tokenizer.encode(prompt(QUESTIONS[0]))], GREEDY)

    assert [text for (text,) in texts] == expected_texts()
    assert again == texts[:1]


def test_requests_added_while_others_run_have_the_same_output() -> None:
    outputs: dict[str, list[int]] = defaultdict(list)
    finished: dict[str, str] = {}
    usages: dict[str, str | None] = {}  # In the last output of each request.

    def callback(batch: Sequence[RequestStreamOutput]) -> None:
        for output in batch:
            request_id, (choice,) = output.unpack()
            usages[request_id] = choice.request_final_usage_json_str
            outputs[request_id] += choice.delta_token_ids
            if choice.finish_reason is not None:
                finished[request_id] = choice.finish_reason

    with SyncMLCEngine(request_stream_callback=callback) as engine:
        pages = engine.metrics()["kv_cache_free_pages"]
        for index, question in enumerate(QUESTIONS):
            data = TextData(prompt(question))
            engine.add_request(engine.create_request(str(index), data, GREEDY))
            engine.add_request(engine.create_request(f"aborted {index}", data, GREEDY))
            for _ in range(3):
                engine.step()
            engine.abort_request(f"aborted {index}")
        while engine.step():
            pass
        engine.add_request(engine.create_request("reset", TextData("Once"), GREEDY))
        engine.reset()

        assert engine.metrics()["kv_cache_free_pages"] == pages
        texts = []
        for index in range(len(QUESTIONS)):
            streamer = TextStreamer(engine.tokenizer)
            texts.append(streamer.put(outputs[str(index)]) + streamer.finish())

    assert texts == expected_texts()
    assert {finished[str(index)] for index in range(3)} == {"stop"}
    assert {finished[f"aborted {index}"] for index in range(3)} == {"abort"}
    assert finished["reset"] == "abort"
    usage_of = {request_id: json.loads(text or "") for request_id, text in usages.items()}
    assert usage_of.keys() == finished.keys()
    assert [usage_of[str(index)]["completion_tokens"] for index in range(3)] == [
        len(outputs[str(index)]) + 1  # The stop token is counted and not returned.
        for index in range(3)
    ]
    assert usage_of["0"]["extra"]["ttft_s"] > 0


def test_step_engine_enforces_json() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    json_format = {"type": "json_object", "schema": {**schema, "additionalProperties": False}}
    config = GenerationConfig(response_format=json_format, temperature=1.0, seed=1, n=2)
    with SyncMLCEngine() as engine:
        texts, _ = engine.generate("Say something.", config)

    assert {json.loads(text)["a"] for text in texts[0]} <= {1, 2}


def test_prompt_logprobs_and_logits_processors_work_as_in_the_sync_engine() -> None:
    question = prompt(QUESTIONS[1])
    with MLCEngine() as sync_engine:
        completion = sync_engine.completions.create(
            prompt=question, temperature=0, max_tokens=4, prompt_logprobs=2
        )

    expected = [entry for entry in completion.choices[0].prompt_logprobs or [] if entry is not None]

    def ban_digits(token_ids: Sequence[int], logits: NDArray[np.float32]) -> None:
        assert token_ids
        logits[digits] = -np.inf

    with SyncMLCEngine() as engine:
        describe = engine.tokenizer.describe
        digits = [
            token_id
            for token_id in range(engine.tokenizer.vocab_size)
            if describe(token_id)[0].strip().isdigit()
        ]
        scored = engine.generate(question, replace(GREEDY, max_tokens=4, prompt_logprobs=2, n=2))
        plain, _ = engine.generate(question, GREEDY)
        changed, _ = engine.generate(question, replace(GREEDY, logits_processors=[ban_digits]))

    (entries,) = scored.prompt_logprobs
    assert entries is not None
    assert [json.loads(text)["logprob"] for text in entries] == [
        entry.logprob for entry in expected
    ]
    assert "42" in plain[0][0]
    assert not any(character.isdigit() for character in changed[0][0])
