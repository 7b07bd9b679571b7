"""`python -m training`: tokenizer, training, evaluation and export; each stage can be resumed."""

from __future__ import annotations

import argparse
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from training.dialogues.exhaustive import NUMBER_KINDS, exhaustive_facts, number_facts
from training.dialogues.records import Fact
from training.evaluate import evaluate, held_out_cases, write_cases
from training.exhaustive import wrong_facts
from training.export import export_hugging_face, export_mlc, read_mlc
from training.mending import practice
from training.model import DRAFT_SHAPE, SHAPE, Prepared, Shape, Weights, prepare
from training.tokenizer import load_tokenizer, train_tokenizer
from training.train import Plan, compute_dtype, read_step, read_weights, train
from training.transfer import transfer_embedding

_LOG = logging.getLogger("training")
_ROOT = Path(__file__).parent.parent
_HELD_OUT_SEED = 2026
_CASES_PER_SKILL = 100
_MAX_MENDINGS = 6
_MARGIN = 1.0
_BUNDLED = _ROOT / "aiomlc" / "bundled"


def _tokenizer_stage(options: argparse.Namespace) -> None:
    path = options.work / "tokenizer.json"
    source = _BUNDLED / "pebble" if options.draft else options.start
    if options.new_tokenizer:
        source = None
    if source and not path.exists():
        shutil.copyfile(source / "tokenizer.json", path)
    if not path.exists():
        _LOG.info("training the tokenizer")
        train_tokenizer(path, options.seed)


def _train_stage(options: argparse.Namespace) -> None:
    plan = _plan(options, options.steps)
    train(options.work, plan, _shape(options), _start(options), _teacher(options))


def _plan(options: argparse.Namespace, steps: int) -> Plan:
    return Plan(
        steps=steps,
        batch_tokens=options.batch_tokens,
        seed=options.seed,
        matrix_rate=Plan().matrix_rate * options.rate,
        other_rate=Plan().other_rate * options.rate,
        device=options.device,
        workers=options.workers,
    )


def _mend_stage(options: argparse.Namespace) -> None:
    """Go on with the wrong and narrow answers about numbers until there are none.

    A narrow one can be wrong in the engine, which rounds activations too.
    """
    checkpoint = options.work / "checkpoint.pt"
    tokenizer = load_tokenizer(options.work / "tokenizer.json")
    facts = [fact for kind in NUMBER_KINDS for fact in number_facts(kind)]
    hard: list[Fact] = []
    for _ in range(_MAX_MENDINGS):
        weights = read_weights(checkpoint, options.device)
        narrow = wrong_facts(weights, _shape(options), tokenizer, facts, _MARGIN)
        _LOG.info("%d of %d wrong or narrow", len(narrow), len(facts))
        if not narrow:
            return
        hard += [fact for fact, _ in narrow]
        plan = _plan(options, read_step(checkpoint) + options.mend_steps)
        train(options.work, plan, _shape(options), draw_dialogue=practice(hard))


def _start(options: argparse.Namespace) -> Weights | None:
    if not options.start:
        return None

    weights = read_mlc(options.start, _shape(options))
    old = load_tokenizer(options.start / "tokenizer.json")
    new = load_tokenizer(options.work / "tokenizer.json")
    if old.get_vocab() != new.get_vocab():
        name = "model.embed_tokens.weight"
        weights[name] = transfer_embedding(weights[name], old, new)
    return weights


def _shape(options: argparse.Namespace) -> Shape:
    return DRAFT_SHAPE if options.draft else SHAPE


def _teacher(options: argparse.Namespace) -> Prepared | None:
    if not options.draft:
        return None

    read = read_mlc(_BUNDLED / "pebble", SHAPE)
    weights = {name: weight.to(options.device) for name, weight in read.items()}
    return prepare(weights, SHAPE, quantized=False, dtype=compute_dtype(options.device))


def _evaluate_stage(options: argparse.Namespace) -> None:
    cases = held_out_cases(options.cases, _HELD_OUT_SEED)
    weights = read_weights(options.work / "checkpoint.pt", options.device)
    report = evaluate(
        weights, _shape(options), load_tokenizer(options.work / "tokenizer.json"), cases
    )
    for skill, score in report["scores"].items():
        _LOG.info("%-10s %5.1f %%", skill, 100 * score)
    text = json.dumps(report, indent=2, ensure_ascii=False)
    (options.work / "report.json").write_text(text + "\n", encoding="utf-8")


def _exhaust_stage(options: argparse.Namespace) -> None:
    weights = read_weights(options.work / "checkpoint.pt", options.device)
    tokenizer = load_tokenizer(options.work / "tokenizer.json")
    report = {}
    for name, facts in exhaustive_facts().items():
        wrong = wrong_facts(weights, _shape(options), tokenizer, facts)
        _LOG.info("%-22s %d of %d wrong", name, len(wrong), len(facts))
        report[name] = [
            {"asked": fact.question, "expected": fact.answer, "got": got} for fact, got in wrong
        ]
    text = json.dumps(report, indent=2, ensure_ascii=False)
    (options.work / "exhaustive.json").write_text(text + "\n", encoding="utf-8")


def _export_stage(options: argparse.Namespace) -> None:
    weights = read_weights(options.work / "checkpoint.pt", "cpu")
    tokenizer = options.work / "tokenizer.json"
    shape = _shape(options)
    export_mlc(options.output, weights, shape, tokenizer)
    if not options.draft:
        write_cases(
            Path(__file__).parent / "heldout" / "heldout.jsonl.gz",
            held_out_cases(_CASES_PER_SKILL, _HELD_OUT_SEED),
        )
    if options.hugging_face:
        export_hugging_face(options.hugging_face, weights, shape, tokenizer)


_STAGES: dict[str, Callable[[argparse.Namespace], None]] = {
    "tokenizer": _tokenizer_stage,
    "train": _train_stage,
    "mend": _mend_stage,
    "evaluate": _evaluate_stage,
    "exhaust": _exhaust_stage,
    "export": _export_stage,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("stages", nargs="*", choices=[*_STAGES, []], help="default: all, in order")
    parser.add_argument(
        "--draft", action="store_true", help="train the small draft model for speculative decoding"
    )
    parser.add_argument("--work", type=Path, help="working directory; default: in build/")
    parser.add_argument(
        "--output", type=Path, help="directory of the model; default: in aiomlc/bundled/"
    )
    parser.add_argument(
        "--hugging-face", type=Path, help="also write a Hugging Face directory here"
    )
    parser.add_argument(
        "--start", type=Path, help="start from the weights and tokenizer of this MLC directory"
    )
    parser.add_argument(
        "--new-tokenizer",
        action="store_true",
        help="train a tokenizer in spite of --start, and carry the embedding over",
    )
    parser.add_argument("--rate", type=float, default=1.0, help="factor on the learning rates")
    parser.add_argument("--steps", type=int, default=Plan().steps)
    parser.add_argument(
        "--mend-steps", type=int, default=100, help="steps after each search for wrong answers"
    )
    parser.add_argument("--seed", type=int, default=Plan().seed)
    parser.add_argument(
        "--cases", type=int, default=_CASES_PER_SKILL, help="held-out prompts per skill"
    )
    parser.add_argument(
        "--batch-tokens", type=int, default=Plan().batch_tokens, help="tokens per step"
    )
    parser.add_argument(
        "--device", default=Plan().device, help="where to compute, as PyTorch names it"
    )
    parser.add_argument(
        "--workers", type=int, default=Plan().workers, help="processes that draw the dialogues"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    name = "pebble-draft" if options.draft else "pebble"
    options.work = options.work or _ROOT / "build" / "training" / name
    options.output = options.output or _BUNDLED / name
    return options


def main() -> None:
    """Run the selected stages."""
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(options.threads)
    torch.backends.cuda.enable_cudnn_sdp(False)  # It builds a plan for each shape, and shapes vary.
    options.work.mkdir(parents=True, exist_ok=True)
    for stage in options.stages or _STAGES:
        _STAGES[stage](options)


if __name__ == "__main__":
    main()
