"""Programs written for MLC LLM, of which only the import and the model path are changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.programs import run_program

# The programs print or concatenate the contents of chunks without checking for None.
PROGRAMS = {
    "stream": """
        from aiomlc import MLCEngine

        engine = MLCEngine(MODEL)
        for response in engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is 12 plus 30?"}],
            model=MODEL, temperature=0, stream=True,
        ):
            for choice in response.choices:
                print(choice.delta.content, end="", flush=True)
        print("\\n")
        engine.terminate()
    """,
    "completion object": """
        from aiomlc import MLCEngine

        engine = MLCEngine(model=MODEL, mode="interactive")
        response = engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is 12 plus 30?"}],
            model=MODEL, temperature=0, stream=False,
        )
        print(response.choices[0].message.content)
        engine.terminate()
    """,
    "concurrent requests": """
        import asyncio
        from typing import Dict
        from aiomlc import AsyncMLCEngine

        async def generate(engine, prompt: str, texts: Dict[str, str]):
            texts[prompt] = ""
            async for response in await engine.chat.completions.create(
                messages=[{"role": "user", "content": prompt}], model=MODEL,
                temperature=0, stream=True, stream_options={"include_usage": True},
            ):
                if len(response.choices) > 0:
                    texts[prompt] += response.choices[0].delta.content

        async def main():
            engine = AsyncMLCEngine(MODEL)
            texts: Dict[str, str] = {}
            prompts = ["What is 12 plus 30?", "What is the capital of France?"]
            await asyncio.gather(*(generate(engine, prompt, texts) for prompt in prompts))
            print(" ".join(texts.values()))
            engine.terminate()

        asyncio.run(main())
    """,
    "step engine": """
        from aiomlc import GenerationConfig, SyncMLCEngine, TextData, TextStreamer

        texts = {}
        streamers = {}

        def callback(outputs):
            for output in outputs:
                request_id, stream_outputs = output.unpack()
                for stream_output in stream_outputs:
                    if stream_output.request_final_usage_json_str is not None:
                        continue
                    texts[request_id] += streamers[request_id].put(stream_output.delta_token_ids)
                    if stream_output.finish_reason is not None:
                        texts[request_id] += streamers[request_id].finish()

        engine = SyncMLCEngine(MODEL, request_stream_callback=callback)
        prompt = "<|im_start|>user\\nWhat is 12 plus 30?<|im_end|>\\n<|im_start|>assistant\\n"
        for number in range(2):
            texts[str(number)] = ""
            streamers[str(number)] = TextStreamer(engine.tokenizer)
            engine.add_request(engine.create_request(
                request_id=str(number), inputs=TextData(prompt),
                generation_config=GenerationConfig(temperature=0, max_tokens=40),
            ))
        while engine.step():
            pass
        print(*texts.values())
    """,
    "json engine": """
        from aiomlc import JSONFFIEngine

        engine = JSONFFIEngine(MODEL)
        for response in engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is 12 plus 30?"}],
            model=MODEL, temperature=0,
        ):
            for choice in response.choices:
                print(choice.delta.content, end="", flush=True)
        engine.terminate()
    """,
    "text completion": """
        from aiomlc import MLCEngine

        engine = MLCEngine(MODEL)
        prompt = "<|im_start|>user\\nWhat is 12 plus 30?<|im_end|>\\n<|im_start|>assistant\\n"
        for response in engine.completions.create(
            prompt=prompt, model=MODEL, max_tokens=40, temperature=0, stream=True
        ):
            for choice in response.choices:
                print(choice.text, end="", flush=True)
        engine.terminate()
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_mlc_llm_program_runs_unchanged(name: str, bundled_model: Path) -> None:
    lines = [line.removeprefix("        ") for line in PROGRAMS[name].splitlines()]
    program = "\n".join([f"MODEL = {str(bundled_model)!r}", *lines])

    result = run_program(["-c", program])

    assert (result.returncode, result.stderr) == (0, "")
    assert "42" in result.stdout
    assert "None" not in result.stdout
