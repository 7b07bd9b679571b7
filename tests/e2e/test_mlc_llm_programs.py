"""Programs written for MLC LLM, of which only the model path is changed, run on the drop-in."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.e2e.programs import ROOT, run_program

DROP_IN = ROOT / "examples" / "drop_in"
WITH_DROP_IN = f"import sys; sys.path.insert(0, {str(DROP_IN)!r})"
# The programs print or concatenate the contents of chunks without checking for None.
PROGRAMS = {
    "stream": """
        from mlc_llm import MLCEngine

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
        from mlc_llm import MLCEngine

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
        from mlc_llm.serve import AsyncMLCEngine

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
        from mlc_llm.protocol.debug_protocol import DebugConfig
        from mlc_llm.protocol.generation_config import GenerationConfig
        from mlc_llm.serve import data
        from mlc_llm.serve.sync_engine import SyncMLCEngine
        from mlc_llm.tokenizers import TextStreamer

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
                request_id=str(number), inputs=data.TextData(prompt),
                generation_config=GenerationConfig(
                    temperature=0, max_tokens=40,
                    debug_config=DebugConfig(pinned_system_prompt=True),
                ),
            ))
        while engine.step():
            pass
        print(*texts.values())
    """,
    "json engine": """
        from mlc_llm.json_ffi import JSONFFIEngine

        engine = JSONFFIEngine(MODEL)
        for response in engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is 12 plus 30?"}],
            model=MODEL, temperature=0,
        ):
            for choice in response.choices:
                print(choice.delta.content, end="", flush=True)
        engine.terminate()
    """,
    "sizes": """
        from mlc_llm import MLCEngine

        engine = MLCEngine(MODEL, max_batch_size=2, max_total_sequence_length=1024,
                           prefill_chunk_size=256, gpu_memory_utilization=0.5)
        messages = [{"role": "user", "content": "What is 12 plus 30?"}]
        response = engine.chat.completions.create(messages=messages, temperature=0)
        print(response.choices[0].message.content)
        engine.terminate()
    """,
    "functions": """
        import json
        import threading
        import mlc_llm.json_ffi
        import tvm_ffi

        table = tvm_ffi.get_global_func("mlc.json_ffi.CreateJSONFFIEngine")()
        texts, ended = [], threading.Event()

        def callback(chunks):
            for chunk in json.loads(chunks):
                texts.extend(choice["delta"].get("content") or "" for choice in chunk["choices"])
                if any(choice["finish_reason"] for choice in chunk["choices"]):
                    ended.set()

        table["init_background_engine"](1, 0, callback)
        loops = [threading.Thread(target=table[f"run_background_{name}"])
                 for name in ("loop", "stream_back_loop")]
        for loop in loops:
            loop.start()
        table["reload"](json.dumps({"model": MODEL, "mode": "local"}))
        table["chat_completion"](json.dumps(
            {"messages": [{"role": "user", "content": "What is 12 plus 30?"}], "temperature": 0}
        ), "1")
        ended.wait(20)
        print("".join(texts))
        table["exit_background_loop"]()
        for loop in loops:
            loop.join()
    """,
    "server": """
        import json
        from urllib.request import Request, urlopen
        from mlc_llm.serve import PopenServer

        with PopenServer(MODEL, port=PORT) as server:
            fields = {"messages": [{"role": "user", "content": "What is 12 plus 30?"}],
                      "temperature": 0, "debug_config": {}}
            request = Request(
                server.openai_v1_base_url + "/chat/completions", json.dumps(fields).encode(),
                {"Content-Type": "application/json"},
            )
            with urlopen(request) as response:
                print(json.load(response)["choices"][0]["message"]["content"])
    """,
    "text completion": """
        from mlc_llm import MLCEngine

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


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(2)
def test_mlc_llm_program_runs_unchanged(name: str, bundled_model: Path) -> None:
    lines = [line.removeprefix("        ") for line in PROGRAMS[name].splitlines()]
    names = [f"MODEL = {str(bundled_model)!r}", f"PORT = {free_port()}"]
    program = "\n".join([WITH_DROP_IN, *names, *lines])

    result = run_program(["-c", program])

    assert result.returncode == 0, result.stderr
    assert result.stderr == "" or name == "server"  # Whose server has a log.
    assert "42" in result.stdout
    assert "None" not in result.stdout


def test_every_module_of_the_drop_in_can_be_imported() -> None:
    files = sorted(DROP_IN.rglob("*.py"))
    paths = [file.relative_to(DROP_IN).with_suffix("") for file in files]
    paths = [path for path in paths if path.name != "__main__"]
    modules = [".".join(path.parts).removesuffix(".__init__") for path in paths]

    result = run_program(["-c", f"{WITH_DROP_IN}; import {', '.join(modules)}"])

    assert (result.returncode, result.stderr) == (0, "")
    assert len(modules) > 10
