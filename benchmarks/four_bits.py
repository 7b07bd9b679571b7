"""Error of 4-bit formats whose sums are integers over a whole row, beside that of `q4f16_1`.

    python -m benchmarks.four_bits [--language-model DIRECTORY] [--encoder DIRECTORY]

`q4f16_1` multiplies every sum of 32 products by two float scales. With *progressive* scales, a
weight is `row_scale * (group_scale * level + offset)`, where only the scale of the row is a float:
`group_scale * level + offset` is an int8, so one sum of integers runs over the row, provided that
the inputs have one scale per token. Formats are simulated: the linear layers of transformers'
models in float32 get rounded weights and round their inputs. The reference is the model whose
weights and inputs are not rounded. A rotation multiplies blocks of inputs, and of the weights'
columns, by a Hadamard matrix before they are rounded.

Without options, the models are the bundled one and random ones; `--language-model` and `--encoder`
name Hugging Face directories, or a GGUF file that transformers reads. A quantized checkpoint would
favor the format that it has, so each of its weights is moved by up to half a step of its group.
Needs `pip install 'aiomlc[train]'`.
"""

from __future__ import annotations

__all__ = (
    "SCHEMES",
    "Progressive",
    "Scheme",
    "blur",
    "hadamard",
    "main",
    "round_inputs",
    "row_scales",
)

import argparse
import copy
import math
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aiomlc.tools.mlc_format import MLC_FORMATS
from aiomlc.tools.quantizer import quantize_rows
from benchmarks.logits_error import compare
from benchmarks.perplexity import held_out_prompts
from benchmarks.quantization_error import dequantized
from benchmarks.quantized_logits import make_heavy_tailed
from benchmarks.quantized_perplexity import write_hugging_face
from benchmarks.random_llama import Shape, make_model

_LEVELS = 15
_MAX_LEVEL = 127
_ROWS_AT_ONCE = 256
_DOCUMENTS = Path(__file__).parent.parent / "docs"
_RANDOM = (
    Shape(hidden=512, intermediate=1_536, layers=8, heads=8, kv_heads=2, vocabulary=4_096),
    Shape(hidden=1_024, intermediate=2_816, layers=4, heads=16, kv_heads=4, vocabulary=4_096),
)


class GroupScales:
    """`q4f16_1` as `aiomlc convert` writes it: a float16 scale per 32 inputs."""

    def __call__(self, weights: Tensor, *, search: bool) -> Tensor:
        """Return the rounded weights, `[rows, columns]`."""
        mlc_format = MLC_FORMATS["q4f16_1"]
        rows: NDArray[np.float32] = np.ascontiguousarray(weights.numpy())
        importance = np.ones(rows.shape[1], np.float32) if search else None
        words, scales = quantize_rows(rows, mlc_format, importance)
        floats = scales.view(np.float16).astype(np.float32)
        restored = dequantized(words.view(np.uint32), floats, mlc_format)
        return torch.from_numpy(restored[:, : rows.shape[1]])


@dataclass(frozen=True)
class Progressive:
    """A float scale per row; an int8 scale and an int8 offset per group of inputs."""

    group: int

    def __call__(self, weights: Tensor, *, search: bool) -> Tensor:
        """Return the rounded weights, `[rows, columns]`."""
        scale = row_scales(weights, self.group) if search else _row_scales(weights, 1.0)
        return self.integers(weights / scale, search=search) * scale

    def integers(self, scaled: Tensor, *, search: bool) -> Tensor:
        """Return the integers, from -128 to 127, that stand for weights divided by row scales."""
        rows, columns = scaled.shape
        padding = -columns % self.group
        # The last group of a row may be shorter; a copy of its last weight changes no extreme.
        padded = torch.cat([scaled, scaled[:, -1:].expand(rows, padding)], 1)
        groups = padded.view(rows, -1, self.group)
        return _fit_groups(groups, search=search).view(rows, -1)[:, :columns]


def row_scales(weights: Tensor, group: int) -> Tensor:
    """Return the scales of rows, `[rows, 1]`, that have the least error with unsearched groups."""
    least, best = torch.tensor(math.inf), _row_scales(weights, 1.0)
    for clipping in (1.0, 0.92, 0.84, 0.76, 0.68, 0.6):
        scale = _row_scales(weights, clipping)
        rounded = Progressive(group).integers(weights / scale, search=False) * scale
        error = (rounded - weights).square().sum(1, keepdim=True)
        best, least = torch.where(error < least, scale, best), torch.minimum(error, least)
    return best


def _row_scales(weights: Tensor, clipping: float) -> Tensor:
    scale = weights.abs().amax(1, keepdim=True) * (clipping / _MAX_LEVEL)
    return torch.where(scale > 0, scale, 1.0)


def _fit_groups(groups: Tensor, *, search: bool) -> Tensor:
    """Round groups, `[..., group]`, to 16 integers with equal steps."""
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step, middle = (high - low) / _LEVELS, (high + low) / 2
    best = _fit_group(groups, step, middle)
    if not search:
        return best

    least = (best - groups).square().sum(-1, keepdim=True)
    clippings = (0.7, 0.76, 0.82, 0.88, 0.94, 1.0, 1.06)
    for clipping, shift in product(clippings, (-0.5, -0.25, 0.0, 0.25, 0.5)):
        fitted = _fit_group(groups, step * clipping, middle + shift * step)
        error = (fitted - groups).square().sum(-1, keepdim=True)
        best = torch.where(error < least, fitted, best)
        least = torch.minimum(error, least)
    return best


def _fit_group(groups: Tensor, step: Tensor, middle: Tensor) -> Tensor:
    """Round to levels about `step` apart, the middle of which is about `middle`."""
    scale = step.round().clamp(1, 2 * _MAX_LEVEL // _LEVELS + 1)
    # The lowest and the highest level are int8, too.
    offset = (middle - scale * _LEVELS / 2).round()
    offset = torch.minimum(offset.clamp(min=-_MAX_LEVEL - 1), _MAX_LEVEL - scale * _LEVELS)
    return ((groups - offset) / scale).round().clamp(0, _LEVELS) * scale + offset


@dataclass(frozen=True)
class Scheme:
    """How weights and inputs of linear layers are rounded."""

    name: str
    bits: str  #: Per weight, without the scale of the row.
    weights: Callable[..., Tensor] | None  #: `None` leaves them in float32.
    inputs: int | None = 0  #: Inputs with a common scale, 0 for all; `None` leaves them in float32.
    rotated: int = 1  #: The largest block that is rotated.


SCHEMES = (
    Scheme("inputs only, a scale per 32", "32", None, 32),
    Scheme("inputs only, a scale per token", "32", None),
    Scheme("the same, blocks of 32 rotated", "32", None, rotated=32),
    Scheme("the same, blocks of 256 rotated", "32", None, rotated=256),
    Scheme("`q4f16_1`, inputs not rounded", "4.5", GroupScales(), None),
    Scheme("`q4f16_1`", "4.5", GroupScales(), 32),
    Scheme("`q4f16_1`, blocks of 256 rotated", "4.5", GroupScales(), 32, 256),
    *(
        Scheme(f"progressive {group}{name}", f"{4 + 16 / group:g}", Progressive(group), 0, rotated)
        for group in (32, 64, 128)
        for name, rotated in (("", 1), (", blocks of 32 rotated", 32), (", of 256", 256))
    ),
)


def hadamard(values: Tensor, block: int) -> Tensor:
    """Multiply blocks of the last dimension by an orthonormal Hadamard matrix.

    The blocks have the size `block`, a power of two, or the greatest that divides the dimension.
    """
    columns = values.shape[-1]
    block = min(block, columns & -columns)
    rows = values.reshape(-1, block)
    width = 1
    while width < block:
        pairs = rows.view(-1, block // (2 * width), 2, width)
        rows = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), 2)
        width *= 2
    return rows.reshape(values.shape) / math.sqrt(block)


def round_inputs(inputs: Tensor, group: int) -> Tensor:
    """Round to int8 with a scale per `group` inputs, or per token if that is 0."""
    groups = inputs.reshape(*inputs.shape[:-1], -1, group or inputs.shape[-1])
    scale = groups.abs().amax(-1, keepdim=True) / _MAX_LEVEL
    scale = torch.where(scale > 0, scale, 1.0)
    return ((groups / scale).round() * scale).reshape(inputs.shape)


def blur(weights: Tensor, group: int = 32) -> Tensor:
    """Move quantized weights by up to half a step of their group; others stay as they are."""
    groups = weights.reshape(-1, group)
    steps = groups.sort(1).values.diff(dim=1)
    if ((steps > 0).sum(1) > _LEVELS).any():
        return weights

    step = torch.where(steps > groups.abs().amax(1, keepdim=True) * 1e-3, steps, math.inf).amin(1)
    noise = torch.rand(groups.shape, generator=torch.Generator().manual_seed(0)) - 0.5
    step = torch.where(step.isfinite(), step, 0.0)
    return (groups + noise * step[:, None]).reshape(weights.shape)


def _apply(network: Any, scheme: Scheme, *, search: bool) -> Any:  # noqa: ANN401 - see below.
    """Round the weights of a network, and let its linear layers round their inputs."""
    done: dict[tuple[int, int], Tensor] = {}  # Embedding and output layer may share their weights.

    def rounded(weights: Tensor, rotated: int) -> Tensor:
        key = (weights.data_ptr(), rotated)
        if key not in done:
            done[key] = torch.cat(
                [_rounded(rows, scheme, rotated, search) for rows in weights.split(_ROWS_AT_ONCE)]
            )
        return done[key]

    def before(_: object, inputs: tuple[Tensor]) -> tuple[Tensor]:
        turned = hadamard(inputs[0], scheme.rotated)
        return (turned if scheme.inputs is None else round_inputs(turned, scheme.inputs),)

    for module in list(network.modules()):
        if isinstance(module, torch.nn.Linear):
            weight = rounded(module.weight.data, scheme.rotated)
            module.weight = torch.nn.Parameter(weight, requires_grad=False)
            module.register_forward_pre_hook(before)
        elif isinstance(module, torch.nn.Embedding) and scheme.weights is not None:
            # A lookup has no inputs to rotate.
            module.weight = torch.nn.Parameter(rounded(module.weight.data, 1), requires_grad=False)
    return network


def _rounded(rows: Tensor, scheme: Scheme, rotated: int, search: bool) -> Tensor:
    rows = hadamard(rows, rotated)
    return rows if scheme.weights is None else scheme.weights(rows, search=search)


Outputs = list[NDArray[np.float32]]


@dataclass(frozen=True)
class Case:
    """A model, what it reads, and the error of what it gives."""

    name: str
    load: Callable[[], Any]  #: A network of transformers, which is untyped here.
    run: Callable[[Any], Outputs]
    errors: Callable[[Outputs, Outputs], str]  #: Of outputs against the reference.


def _logits(prompts: list[list[int]]) -> Callable[[Any], Outputs]:
    return lambda network: [network(torch.tensor([prompt])).logits[0].numpy() for prompt in prompts]


def _logits_error(outputs: Outputs, reference: Outputs) -> str:
    return f"{compare(np.concatenate(outputs), np.concatenate(reference)).median:.2%}"


def _language_error(prompts: list[list[int]]) -> Callable[[Outputs, Outputs], str]:
    """Return a function for the error of logits, divergence and perplexity."""

    def errors(outputs: Outputs, reference: Outputs) -> str:
        divergence, loss, count = 0.0, 0.0, 0
        for logits, exact, prompt in zip(outputs, reference, prompts, strict=True):
            scores = torch.log_softmax(torch.from_numpy(logits[:-1]), -1)
            truth = torch.log_softmax(torch.from_numpy(exact[:-1]), -1)
            divergence += float((truth.exp() * (truth - scores)).sum())
            loss -= float(scores.gather(1, torch.tensor(prompt)[1:, None]).sum())
            count += len(prompt) - 1
        perplexity = math.exp(loss / count)
        error = _logits_error(outputs, reference)
        return f"{error}, {divergence / count:.4f}, {perplexity:.3f}"

    return errors


def _cosine_error(outputs: Outputs, reference: Outputs) -> str:
    """Return the mean of 1 minus the cosine of the angle between embeddings."""
    return f"{np.mean([1 - a @ b for a, b in zip(outputs, reference, strict=True)]):.5f}"


def _passages(count: int) -> list[str]:
    """Return what the first pages of the documentation begin with, about 150 words of each."""
    passages = []
    for path in sorted(_DOCUMENTS.glob("*.md"))[:count]:
        paragraphs = path.read_text("utf-8").split("\n\n")
        prose = (" ".join(text.split()) for text in paragraphs if text[:1].isalpha())
        passages.append(" ".join("\n".join(prose).split(" ")[:150]))
    return passages


def _language_case(name: str, path: Path, prompts: list[list[int]]) -> Case:
    from transformers import AutoModelForCausalLM

    file = {"gguf_file": path.name} if path.is_file() else {}
    directory = path.parent if path.is_file() else path

    def load() -> Any:  # noqa: ANN401 - transformers is untyped.
        network = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **file)
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.data = blur(parameter.data)
        return network

    return Case(name, load, _logits(prompts), _language_error(prompts))


def _language_model(path: Path, count: int) -> Case:
    from transformers import AutoTokenizer

    file = {"gguf_file": path.name} if path.is_file() else {}
    tokenizer = AutoTokenizer.from_pretrained(path.parent if path.is_file() else path, **file)
    prompts = [tokenizer(text)["input_ids"] for text in _passages(count)]
    return _language_case(path.stem, path, prompts)


def _encoder(path: Path, count: int) -> Case:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = [tokenizer(text, return_tensors="pt") for text in _passages(count)]

    def embed(network: Any) -> Outputs:  # noqa: ANN401 - transformers is untyped.
        means = [network(**text).last_hidden_state[0].mean(0) for text in texts]
        return [torch.nn.functional.normalize(mean, dim=0).numpy() for mean in means]

    def load() -> Any:  # noqa: ANN401 - transformers is untyped.
        return AutoModel.from_pretrained(path, dtype=torch.float32, add_pooling_layer=False)

    return Case(path.name, load, embed, _cosine_error)


def _random_cases(directory: Path, tokens: int) -> Iterator[Case]:
    from transformers import AutoModelForCausalLM

    for shape, weights in product(_RANDOM, ("normal", "heavy-tailed")):
        path = directory / f"{shape.hidden}-{weights}"
        make_model(path, shape)
        if weights == "heavy-tailed":
            make_heavy_tailed(path)
        prompt = random.Random(0).choices(range(shape.vocabulary), k=tokens)

        def load(path: Path = path) -> Any:  # noqa: ANN401 - transformers is untyped.
            return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)

        name = f"{shape.layers} random layers of {shape.hidden}, {weights}"
        yield Case(name, load, _logits([prompt]), _logits_error)


def _cases(arguments: argparse.Namespace, directory: Path) -> Iterator[Case]:
    bundled = directory / "bundled"
    write_hugging_face(bundled)
    yield _language_case("bundled", bundled, held_out_prompts(arguments.texts))
    if arguments.language_model is not None:
        yield _language_model(arguments.language_model, arguments.texts)
    if arguments.encoder is not None:
        yield _encoder(arguments.encoder, arguments.texts)
    yield from _random_cases(directory, arguments.tokens)


def _print_table(case: Case, schemes: Iterable[Scheme]) -> None:
    print(f"\n{case.name}\n\n| | bits | default | search |\n|---|---|---|---|")
    original = case.load().eval()
    reference = case.run(original)
    print(f"| float32 | 32 | {case.errors(reference, reference)} | |", flush=True)
    for scheme in schemes:
        row = f"| {scheme.name} | {scheme.bits} "
        for search in (False, True) if scheme.weights is not None else (False,):
            network = _apply(copy.deepcopy(original), scheme, search=search)
            row += f"| {case.errors(case.run(network), reference)} "
        print(f"{row}|" if scheme.weights is not None else f"{row}| |", flush=True)


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--language-model", type=Path, help="a directory or a GGUF file")
    parser.add_argument("--encoder", type=Path, help="a directory")
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=128, help="that a random model reads")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, torch.inference_mode():
        for case in _cases(arguments, Path(directory)):
            _print_table(case, SCHEMES)


if __name__ == "__main__":
    main()
