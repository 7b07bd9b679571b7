"""Run the engine step by step; a callback receives the new tokens of each request."""

from __future__ import annotations

import json

from aiomlc import GenerationConfig, SyncMLCEngine, TextData, TextStreamer
from aiomlc.api.step.data import RequestStreamOutput

PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def main() -> None:
    texts: dict[str, str] = {}
    tokens: dict[str, int] = {}

    def callback(outputs: list[RequestStreamOutput]) -> None:
        for output in outputs:
            request_id, (choice,) = output.unpack()
            usage = choice.request_final_usage_json_str
            if usage is None:
                texts[request_id] += streamers[request_id].put(choice.delta_token_ids)
            else:  # The usage follows the last tokens as a separate output.
                texts[request_id] += streamers[request_id].finish()
                tokens[request_id] = json.loads(usage)["completion_tokens"]

    with SyncMLCEngine(request_stream_callback=callback) as engine:
        streamers = {}
        for question in ("Who are you?", "What is 12 plus 30?"):
            texts[question] = ""
            streamers[question] = TextStreamer(engine.tokenizer)
            data = TextData(PROMPT.format(question))
            config = GenerationConfig(temperature=0, max_tokens=64)
            engine.add_request(engine.create_request(question, data, config))

        while engine.step():
            pass

    for question, text in texts.items():
        print(question, text, f"({tokens[question]} tokens)")


if __name__ == "__main__":
    main()
