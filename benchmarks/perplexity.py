"""Perplexity of the kernels' arithmetic, compared with the same weights in float32.

    python -m benchmarks.perplexity --hugging-face DIRECTORY

The bundled model scores held-out dialogues through the engine (activations in 8 bits, keys and
values in float16), once per instruction set, and with keys and values in 8 bits. transformers
scores the same tokens in float32 with the same quantized weights, which
`python -m training export --hugging-face DIRECTORY` writes; `--engine-only` leaves it out.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.config import BUNDLED_MODEL, KVCacheType
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

_HELD_OUT = Path(__file__).parent.parent / "training" / "heldout" / "heldout.jsonl.gz"
_TIERS = ("avx512", "avxvnni", "avx2", "portable")
_CACHE_DTYPES: tuple[KVCacheType, ...] = ("float16", "int8", "int4")


async def mean_logprob_of_engine(prompts: list[list[int]], kv_cache_dtype: KVCacheType) -> float:
    """Return the mean logprob of all prompt tokens except the first of each prompt."""
    logprobs: list[float] = []
    config = EngineConfig(kv_cache_dtype=kv_cache_dtype)
    async with AsyncMLCEngine(engine_config=config) as engine:
        for prompt in prompts:
            completion = await engine.completions.create(
                prompt=prompt, prompt_logprobs=0, max_tokens=1
            )
            entries = completion.choices[0].prompt_logprobs or []
            logprobs += [entry.logprob for entry in entries if entry is not None]

    return sum(logprobs) / len(logprobs)


def mean_logprob_in_float32(prompts: list[list[int]], directory: Path) -> float:
    """Return the same mean as computed by transformers in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    total, count = 0.0, 0
    with torch.no_grad():
        for prompt in prompts:
            ids = torch.tensor([prompt])
            logprobs = torch.log_softmax(model(ids).logits[0, :-1].double(), -1)
            total += float(logprobs.gather(1, ids[0, 1:, None]).sum())
            count += len(prompt) - 1

    return total / count


def held_out_dialogues(num_dialogues: int) -> list[str]:
    """Return held-out dialogues as the model reads them, each ending with an accepted answer."""
    template = ChatTemplate.load(ConfigFiles(BUNDLED_MODEL))
    assert template is not None, "the bundled model has a chat template"
    lines = gzip.decompress(_HELD_OUT.read_bytes()).decode("utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if case.get("accept")]
    return [
        template.render(
            [*case["messages"], {"role": "assistant", "content": case["accept"][0]}],
            tools=case.get("tools"),
            add_generation_prompt=False,
        )
        for case in cases[:: max(1, len(cases) // num_dialogues)]
    ]


def held_out_prompts(num_dialogues: int) -> list[list[int]]:
    """Return the tokens of `held_out_dialogues`."""
    tokenizer = Tokenizer(BUNDLED_MODEL / "tokenizer.json")
    return [tokenizer.encode(dialogue) for dialogue in held_out_dialogues(num_dialogues)]


def mean_logprob_in_subprocess(tokens: Path, tier: str, kv_cache_dtype: KVCacheType) -> float:
    """Return `mean_logprob_of_engine` with the instruction set `tier`, from a subprocess."""
    process = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.perplexity"),
            *("--score-only", str(tokens), "--kv-cache-dtype", kv_cache_dtype),
        ],
        env={**os.environ, "AIOMLC_ISA": tier},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(process.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hugging-face", type=Path)
    parser.add_argument("--engine-only", action="store_true")
    parser.add_argument("--tiers", nargs="+", choices=_TIERS, default=_TIERS)
    parser.add_argument("--dialogues", type=int, default=300)
    parser.add_argument("--score-only", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kv-cache-dtype", default="auto", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.score_only is not None:
        prompts = json.loads(arguments.score_only.read_text("utf-8"))
        print(anyio.run(mean_logprob_of_engine, prompts, arguments.kv_cache_dtype))
        return

    if arguments.hugging_face is None and not arguments.engine_only:
        parser.error("one of --hugging-face and --engine-only is required")

    prompts = held_out_prompts(arguments.dialogues)
    reference: float | None = None
    print(f"{sum(map(len, prompts))} tokens\n\n| | perplexity | ratio |\n|---|---|---|")
    if not arguments.engine_only:
        reference = math.exp(-mean_logprob_in_float32(prompts, arguments.hugging_face))
        print(f"| float32 | {reference:.4f} | |")
    with tempfile.TemporaryDirectory() as directory:
        tokens = Path(directory) / "tokens.json"
        tokens.write_text(json.dumps(prompts), "utf-8")
        for tier, cache_dtype in itertools.product(arguments.tiers, _CACHE_DTYPES):
            perplexity = math.exp(-mean_logprob_in_subprocess(tokens, tier, cache_dtype))
            reference = reference or perplexity
            print(f"| {tier}, {cache_dtype} | {perplexity:.4f} | {perplexity / reference:.5f} |")


if __name__ == "__main__":
    main()
