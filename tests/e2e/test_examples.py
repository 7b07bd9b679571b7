from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from aiomlc import MLCEngine
from examples.invoice import Invoice, Line
from tests.e2e.programs import ROOT, run_program, wrong_sums
from tests.model import tiny_encoders
from tests.model.tiny_dual import write_dual_model
from tests.model.tiny_encoder import write_encoder
from tests.model.tiny_vision import write_vision_model
from tests.unit.runtime.images.pictures import gradient

NEED_ARGUMENTS = {"describe", "find_pictures", "invoice", "rag", "search"}
NEED_RAY = {"ray_app"}  # Run by `tests/ray`.
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").glob("*.py")
    if path.stem not in {"__init__", *NEED_ARGUMENTS, *NEED_RAY}
)


# What the output of an example contains, and its number of sums.
ANSWERS = {
    "agent": (
        'get_weather {"city": "Rome"} -> {"weather": "sunny"}\n',
        'get_population {"city": "Paris"} -> {"population": 2103778}\n',
    ),
    "batch": ("4 of 12 answers were missing\n",),
    "completions": ("12 + 30 = 42.", "The capital of France is Paris."),
    "events": ("I make mistakes.\n74 tokens\n",),
    "fastapi_app": (
        "12 + 30 = 42.",
        'data: "The capital of France is Paris."\n\nevent: end\n',
        "7 + 8 = 15.",
    ),
    "structured": ("Mia is 31",),
    "tools": ('get_weather {"city": "Rome"}\nThe weather in Rome is sunny.',),
}
BETWEEN_EVENTS = '"\n\ndata: "'  # How many deltas an event joins depends on the time.
SUMS = {"batch": 12, "generate_many": 20, "threads": 8, "from_threads": 8, "task_group": 32}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.sampled(4)
def test_example_prints_right_answers_and_no_warning(path: Path) -> None:
    result = run_program([str(path)])

    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.split()) > 2
    assert wrong_sums(result.stdout) == []
    output = result.stdout.replace(BETWEEN_EVENTS, "")
    assert [text for text in ANSWERS.get(path.stem, ()) if text not in output] == []
    assert result.stdout.count(" = ") == SUMS.get(path.stem, result.stdout.count(" = "))


def test_the_expected_answers_are_those_of_examples() -> None:
    assert {*ANSWERS, *SUMS} <= {path.stem for path in EXAMPLES}


def test_the_bot_answers_its_slow_channel_last() -> None:
    lines = run_program(["examples/bot.py"]).stdout.splitlines()

    assert {line.split()[0] for line in lines[:8]} == {f"#sums-{n}" for n in range(1, 9)}
    assert [line for line in lines if line.startswith("#names")][-1].endswith("Ada.")
    assert lines[-2:] == ["#slow 1 + 1 = 2.", "closed"]


def test_rag_finds_the_passage_that_is_asked_for(tmp_path: Path) -> None:
    """A random encoder knows equal texts only, so the question is a passage."""
    encoder = write_encoder(tmp_path / "encoder")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "sums.md").write_text("What is 12 plus 30?\n")
    (tmp_path / "notes" / "names.txt").write_text("My name is Ada.\n\nBread needs flour.\n")

    result = run_program(
        ["examples/rag.py", str(encoder), str(tmp_path / "notes"), "What is 12 plus 30?"]
    )

    assert (result.returncode, result.stderr) == (0, "")
    passage, answer = result.stdout.splitlines()
    assert passage == "1.00 sums.md: What is 12 plus 30?"
    assert answer


def test_search_ranks_the_candidates_that_are_most_similar(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    reranker = tiny_encoders.write_encoder(tmp_path / "reranker", "bert_reranker")
    texts = ["the cat sleeps", "stocks fell", "a kitten naps", "bread needs flour"]
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "cats.md").write_text("\n\n".join(texts[:2]))
    (notes / "more.txt").write_text("\n\n".join(texts[2:]))
    query = "how do cats sleep"
    with MLCEngine(encoder) as engine:
        items = engine.embeddings.create(input=[query, *texts]).data
    vectors = np.array([item.embedding for item in items])
    candidates = [texts[i] for i in np.argsort(-(vectors[1:] @ vectors[0]))[:3]]
    with MLCEngine(reranker) as engine:
        scores = [item.score for item in engine.score([(query, text) for text in candidates]).data]
    best = sorted(zip(scores, candidates, strict=True), reverse=True)[:2]

    result = run_program(
        [
            *("examples/search.py", str(encoder), str(reranker), str(notes), query),
            *("--candidates", "3", "--results", "2"),
        ]
    )

    assert (result.returncode, result.stderr) == (0, "")
    files = {text: "cats.md" if text in texts[:2] else "more.txt" for text in texts}
    lines = [f"{score:.3f} {files[text]}: {text}" for score, text in best]
    assert result.stdout.splitlines() == lines


def test_the_pictures_that_are_most_similar_to_a_text_are_found(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")
    model = write_dual_model(tmp_path / "model", "siglip")
    folder = tmp_path / "pictures"
    (folder / "sub").mkdir(parents=True)
    paths = [folder / f"{index}.png" for index in range(17)] + [folder / "sub" / "a.JPEG"]
    for index, path in enumerate(paths):
        gradient(20 + 7 * index, 30, "RGB").save(path)
    (folder / "notes.txt").write_text("no picture")
    with MLCEngine(model) as engine:
        items = [
            engine.embeddings.create(input={"image": path.read_bytes()}).data[0] for path in paths
        ]
        query = engine.embeddings.create(input="a cat").data[0]
    cosines = np.array([item.embedding for item in items]) @ np.array(query.embedding)

    program = ["examples/find_pictures.py", str(model), str(folder), "a cat", "--results", "3"]
    result = run_program(program)

    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split(" ") for line in result.stdout.splitlines()]
    best = sorted(cosines, reverse=True)[:3]
    assert [float(score) for score, _ in lines] == pytest.approx(best, abs=1e-3)
    named = {
        str(path.relative_to(folder)): cosine for path, cosine in zip(paths, cosines, strict=True)
    }
    assert [named[name] for _, name in lines] == pytest.approx(best, abs=1e-6)


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    result = run_program(["examples/find_pictures.py", "model", str(tmp_path), "a cat"])

    assert result.returncode == 1
    assert result.stderr.startswith("no pictures: ")


@pytest.fixture
def image_reader(tmp_path: Path) -> Path:
    """Return a tiny random model that reads images, with a context for a long answer."""
    pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")
    directory = write_vision_model(tmp_path / "reader", "smolvlm")
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["text_config"]["max_position_embeddings"] = 8192
    path.write_text(json.dumps(config))
    return directory


def test_a_picture_is_described(image_reader: Path, tmp_path: Path) -> None:
    pictures = []
    for seed in range(2):
        pictures.append(tmp_path / f"{seed}.png")
        gradient(60, 40 + 20 * seed).save(pictures[-1])

    program = ["examples/describe.py", str(image_reader)]
    results = [run_program([*program, str(each), "--max-tokens", "9"]) for each in pictures]

    for result in results:
        assert (result.returncode, result.stderr) == (0, "")
        assert re.search(r"[1-9]\d* tokens of the picture", result.stdout)
    assert results[0].stdout != results[1].stdout


def test_the_picture_of_an_invoice_becomes_a_value(image_reader: Path, tmp_path: Path) -> None:
    """A random model writes anything, but an invoice."""
    picture = tmp_path / "invoice.jpeg"
    gradient(120, 160).save(picture)

    result = run_program(["examples/invoice.py", str(image_reader), str(picture)])

    assert (result.returncode, result.stderr) == (0, "")
    text, brace, check = result.stdout.rpartition("}\n")
    invoice = Invoice.model_validate_json(text + brace)
    assert bool(check) == (invoice.difference != 0)


def test_the_sum_of_an_invoice_is_checked() -> None:
    lines = [Line(description=text, quantity=1, amount="1.10") for text in "ab"]

    def invoice(total: str) -> Invoice:
        issued = date(2026, 1, 2)
        return Invoice(
            number="1", issued=issued, seller="c", currency="EUR", lines=lines, total=total
        )

    assert invoice("2.20").difference == 0
    assert invoice("2.00").difference == Decimal("-0.20")


def test_search_says_that_a_folder_has_no_text(tmp_path: Path) -> None:
    result = run_program(["examples/search.py", "encoder", "reranker", str(tmp_path), "a"])

    assert result.returncode == 1
    assert "no passages" in result.stderr
