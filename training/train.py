"""The training loop: batches generated on the fly, Muon and AdamW, fake quantization at the end."""

from __future__ import annotations

__all__ = (
    "Batch",
    "Draw",
    "Plan",
    "compute_dtype",
    "make_batches",
    "read_step",
    "read_weights",
    "train",
)

import itertools
import logging
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from torch.utils.data import DataLoader

from training.dialogues.compose import conversation
from training.dialogues.records import Dialogue
from training.model import Prepared, Shape, Weights, forward, initial_weights, prepare
from training.muon import Muon
from training.tokenizer import encode_dialogue, load_tokenizer

_LOG = logging.getLogger("training")
_CONTEXT_FRACTION = 0.02  # Fraction of the other tokens that are trained on besides answers.
_CONTEXT_WEIGHT = 0.3  # Their weight in the loss.
_REPORT_STEPS = 20
_STEPS_PER_DRAW = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """The length and the learning rates of a training run, and what it runs on.

    The rates decay linearly to 0 over the last fraction `decay` of the steps.
    """

    steps: int = 6000
    batch_tokens: int = 4096
    max_row_tokens: int = 1024
    matrix_rate: float = 0.016
    other_rate: float = 0.003
    warmup: int = 50
    decay: float = 0.8
    quantize: float = 0.35  #: Fraction of the steps, at the end, with quantized weights.
    seed: int = 1
    checkpoint_seconds: float = 120.0
    device: str = "cpu"  #: As PyTorch names it.
    workers: int = 0  #: Processes that draw the dialogues; 0 draws them between the steps.

    def rate(self, step: int) -> float:
        """Return the factor on both learning rates at `step`."""
        rising = (step + 1) / self.warmup
        falling = (self.steps - step) / (self.steps * self.decay)
        return max(0.0, min(1.0, rising, falling))

    def quantizes(self, step: int) -> bool:
        """Return whether the weights are rounded to q4f16_1 at `step`."""
        return step >= self.steps * (1 - self.quantize)


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded rows, concatenated."""

    token_ids: torch.Tensor
    positions: torch.Tensor  #: Indices in `token_ids` whose next token is trained on.
    targets: torch.Tensor  #: The next tokens.
    weights: torch.Tensor  #: Their weights in the loss.
    groups: tuple[tuple[int, int], ...]  #: `(rows, length)` of rows with equal padded length.

    def to(self, device: str) -> Batch:
        """Return the batch with its tensors on `device`."""
        return Batch(
            self.token_ids.to(device),
            self.positions.to(device),
            self.targets.to(device),
            self.weights.to(device),
            self.groups,
        )


_Row = tuple[list[int], list[bool]]
Draw = Callable[[random.Random], Dialogue]


def make_batches(
    tokenizer: Tokenizer, plan: Plan, draw: int, draw_dialogue: Draw = conversation
) -> list[Batch]:
    """Draw the dialogues of `_STEPS_PER_DRAW` steps; they depend on the seed and `draw` only.

    They are divided by length, so that the rows of a batch need little padding.
    """
    rng = random.Random(f"{plan.seed}/{draw}")
    drawn: list[_Row] = []
    total = 0
    while total < plan.batch_tokens * _STEPS_PER_DRAW:
        token_ids, answers = encode_dialogue(tokenizer, draw_dialogue(rng))
        drawn.append((token_ids[: plan.max_row_tokens], answers[: plan.max_row_tokens]))
        total += len(drawn[-1][0])
    drawn.sort(key=lambda row: -len(row[0]))
    order = rng.sample(range(_STEPS_PER_DRAW), _STEPS_PER_DRAW)
    size = total / _STEPS_PER_DRAW
    return [_build_batch(_portion(drawn, size, index), rng) for index in order]


@dataclass(frozen=True, slots=True)
class _Draws:
    """The draws of a plan, by their number."""

    tokenizer: Tokenizer
    plan: Plan
    draw_dialogue: Draw

    def __getitem__(self, draw: int) -> list[Batch]:
        return make_batches(self.tokenizer, self.plan, draw, self.draw_dialogue)


def _ignore_sigterm(_worker: int) -> None:
    """Leave SIGTERM, which may be sent to the whole process group, to the training process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _batches(draws: _Draws, step: int) -> Iterator[Batch]:
    """Yield the batches from `step` on."""
    plan = draws.plan
    first, skipped = divmod(step, _STEPS_PER_DRAW)
    last = (plan.steps - 1) // _STEPS_PER_DRAW
    loader: Iterable[list[Batch]] = DataLoader(
        cast(Any, draws),
        batch_size=None,
        sampler=range(first, last + 1),
        num_workers=plan.workers,
        multiprocessing_context="fork" if plan.workers else None,
        worker_init_fn=_ignore_sigterm,
    )
    flat = (batch for batches in loader for batch in batches)
    return itertools.islice(flat, skipped, skipped + plan.steps - step)


def _portion(rows: list[_Row], size: float, index: int) -> list[_Row]:
    """Return the rows that start within the `index`-th portion of `size` tokens."""
    portion = []
    start = 0
    for row in rows:
        if index * size <= start < (index + 1) * size:
            portion.append(row)
        start += len(row[0])
    return portion


def _build_batch(drawn: list[_Row], rng: random.Random) -> Batch:
    flat: list[int] = []
    positions: list[int] = []
    targets: list[int] = []
    weights: list[float] = []
    groups: list[tuple[int, int]] = []
    for rows in _group_by_length(drawn):
        length = len(rows[0][0])
        groups.append((len(rows), length))
        for token_ids, answers in rows:
            for index in range(1, len(token_ids)):
                if answers[index] or rng.random() < _CONTEXT_FRACTION:
                    positions.append(len(flat) + index - 1)
                    targets.append(token_ids[index])
                    weights.append(1.0 if answers[index] else _CONTEXT_WEIGHT)
            flat += token_ids + [0] * (length - len(token_ids))
    return Batch(
        torch.tensor(flat),
        torch.tensor(positions),
        torch.tensor(targets),
        torch.tensor(weights),
        tuple(groups),
    )


def _group_by_length(
    rows: list[_Row],
) -> list[list[_Row]]:
    """Split rows, which are sorted by descending length, into groups that need little padding."""
    groups: list[list[_Row]] = []
    for row in rows:
        if groups and len(row[0]) >= 0.88 * len(groups[-1][0][0]):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


@dataclass(frozen=True, slots=True)
class _Optimizers:
    matrices: Muon
    others: Any

    def step(self, plan: Plan, rate: float) -> None:
        self.matrices.step(plan.matrix_rate * rate)
        for group in self.others.param_groups:
            group["lr"] = plan.other_rate * rate
        self.others.step()
        self.others.zero_grad(set_to_none=True)


def _optimizers(weights: Weights, plan: Plan) -> _Optimizers:
    matrices = [w for name, w in weights.items() if w.ndim == 2 and "embed" not in name]
    others = [w for name, w in weights.items() if w.ndim != 2 or "embed" in name]
    return _Optimizers(
        Muon(matrices, momentum=0.95, weight_decay=0.05),
        torch.optim.AdamW(others, lr=plan.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
    )


def _logits(model: Prepared, batch: Batch) -> torch.Tensor:
    hidden = forward(model, batch.token_ids, batch.groups)[batch.positions]
    return functional.linear(hidden, model.embedding)


def _backward(logits: torch.Tensor, batch: Batch, teacher: Prepared | None) -> torch.Tensor:
    """Add the gradients of the weighted mean cross-entropy; return the loss on the batch's targets.

    With a `teacher`, the gradients are those against its distributions. The gradient of the logits
    is computed by hand, since autograd takes several passes over them.
    """
    weights = (batch.weights / batch.weights.sum())[:, None]
    targets = batch.targets[:, None]
    with torch.no_grad():
        gradient = torch.softmax(logits.float(), -1)
        losses = -gradient.gather(1, targets).clamp(min=1e-9).log()
        if teacher is None:
            gradient.scatter_add_(1, targets, torch.full_like(losses, -1.0))
        else:
            gradient -= torch.softmax(_logits(teacher, batch).float(), -1)
        gradient.mul_(weights)
    logits.backward(gradient.to(logits.dtype))
    return (losses * weights).sum()


def compute_dtype(device: str) -> torch.dtype:
    """Return bfloat16 where `device` multiplies it fast, otherwise float32."""
    if device != "cpu":
        return torch.bfloat16
    features = torch.cpu.get_capabilities()
    fast = any(features.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
    return torch.bfloat16 if fast else torch.float32


def read_weights(checkpoint: Path, device: str) -> Weights:
    """Load only the weights of a checkpoint."""
    state = torch.load(checkpoint, weights_only=True, map_location=device)
    weights: Weights = state["weights"]
    return weights


def read_step(checkpoint: Path) -> int:
    """Return the number of steps that lead to a checkpoint."""
    step: int = torch.load(checkpoint, weights_only=True, map_location="cpu")["step"]
    return step


@dataclass(slots=True)
class _Run:
    """The state of a training run. A checkpoint contains all of it except shape and teacher."""

    shape: Shape
    teacher: Prepared | None
    weights: Weights
    optimizers: _Optimizers
    step: int = 0
    tokens: int = 0

    def advance(self, plan: Plan, batch: Batch) -> torch.Tensor:
        """Take one step and return its loss."""
        quantized = plan.quantizes(self.step)
        dtype = compute_dtype(plan.device)
        model = prepare(self.weights, self.shape, quantized=quantized, dtype=dtype)
        loss = _backward(_logits(model, batch), batch, self.teacher)
        self.optimizers.step(plan, plan.rate(self.step))
        self.step += 1
        self.tokens += len(batch.token_ids)
        return loss

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically."""
        temporary = path.with_suffix(".tmp")
        state = {
            "weights": {name: weight.detach() for name, weight in self.weights.items()},
            "matrices": self.optimizers.matrices.averages,
            "others": self.optimizers.others.state_dict(),
            "step": self.step,
            "tokens": self.tokens,
        }
        torch.save(state, temporary)
        temporary.replace(path)


def _open_run(
    checkpoint: Path, plan: Plan, shape: Shape, start: Weights | None, teacher: Prepared | None
) -> _Run:
    state: dict[str, Any] = {}
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True, map_location=plan.device)
    initial: Weights = state.get("weights") or start or initial_weights(shape, plan.seed)
    weights = {name: weight.to(plan.device).requires_grad_() for name, weight in initial.items()}
    optimizers = _optimizers(weights, plan)
    if state:
        optimizers.matrices.averages[:] = state["matrices"]
        optimizers.others.load_state_dict(state["others"])
    progress = (state.get("step", 0), state.get("tokens", 0))
    return _Run(shape, teacher, weights, optimizers, *progress)


def train(
    directory: Path,
    plan: Plan,
    shape: Shape,
    start: Weights | None = None,
    teacher: Prepared | None = None,
    draw_dialogue: Draw = conversation,
) -> None:
    """Train until `plan.steps`, starting from the checkpoint in `directory` if there is one.

    SIGTERM writes a checkpoint and stops the training.

    Args:
        directory: The directory of the tokenizer and the checkpoint.
        plan: The length, the learning rates and the device.
        shape: The sizes of the model.
        start: The initial weights without a checkpoint; None for random weights.
        teacher: A model whose distributions are learned instead of the dialogues' tokens.
        draw_dialogue: Draws a training dialogue.
    """
    tokenizer = load_tokenizer(directory / "tokenizer.json")
    checkpoint = directory / "checkpoint.pt"
    run = _open_run(checkpoint, plan, shape, start, teacher)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    saved = reported = time.monotonic()
    for batch in _batches(_Draws(tokenizer, plan, draw_dialogue), run.step):
        if stopped:
            break
        loss = run.advance(plan, batch.to(plan.device))
        if run.step % _REPORT_STEPS == 0:
            text = f"step {run.step} loss {float(loss):.4f} tokens {run.tokens}"
            pace = (time.monotonic() - reported) / _REPORT_STEPS
            _LOG.info("%s pace %.3f s", text, pace)
            reported = time.monotonic()
        now = time.monotonic()
        if now - saved > plan.checkpoint_seconds:
            run.save(checkpoint)
            saved = now
    run.save(checkpoint)
