"""Training dialogues: correct answers, held-out prompts and the chat template."""

from __future__ import annotations

import json
import random
import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from training.dialogues.arithmetic import arithmetic
from training.dialogues.calls import draw_tool_case
from training.dialogues.compose import SKILLS, conversation, held_out_dialogue
from training.dialogues.extraction import constrained_extraction, extraction
from training.dialogues.knowledge import calendar
from training.dialogues.memory import draw_facts
from training.dialogues.ordering import comparing, sorting
from training.dialogues.records import Dialogue, is_held_out, say
from training.dialogues.stories import draw_story
from training.dialogues.template import CHAT_TEMPLATE, assistant_text, render
from training.dialogues.words import person
from training.tokenizer import encode_dialogue, load_tokenizer, pre_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(
        Path(__file__).parents[3] / "aiomlc" / "bundled" / "pebble" / "tokenizer.json"
    )


def _render_with_jinja(dialogue: Dialogue) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(CHAT_TEMPLATE)
    return template.render(messages=list(dialogue.messages), tools=list(dialogue.tools) or None)


def _sample() -> list[Dialogue]:
    rng = random.Random(5)
    return [conversation(rng) for _ in range(300)]


@pytest.mark.thorough
def test_render_equals_the_jinja_template() -> None:
    for dialogue in _sample():
        text = "".join(segment.text for segment in render(dialogue.messages, dialogue.tools))
        assert text == _render_with_jinja(dialogue)


def test_consecutive_tool_messages_form_one_user_turn() -> None:
    messages = (say("user", "Go"), say("tool", "1"), say("tool", "2"))
    dialogue = Dialogue("tools", messages, "")
    text = "".join(segment.text for segment in render(messages))
    assert text == _render_with_jinja(dialogue)
    assert text.count("<|im_start|>user") == 2


def test_answer_segments_are_the_assistant_messages() -> None:
    for dialogue in _sample():
        answers = [
            segment.text
            for segment in render(dialogue.messages, dialogue.tools)
            if segment.is_answer
        ]
        messages = [message for message in dialogue.messages if message["role"] == "assistant"]
        assert answers == [assistant_text(message) + "<|im_end|>" for message in messages]


@pytest.mark.parametrize("skill", SKILLS)
def test_every_skill_has_held_out_prompts_that_end_in_an_answer(skill: str) -> None:
    rng = random.Random(3)
    for _ in range(30):
        dialogue = held_out_dialogue(skill, rng)
        assert dialogue.skill == skill
        assert dialogue.messages[-1]["role"] == "assistant"
        assert is_held_out(dialogue.key) or skill == "tools"


def test_phrasings_of_sums_are_held_out_and_no_operands() -> None:
    rng = random.Random(4)
    phrasings: dict[str, set[bool]] = {}
    for _ in range(20_000):
        fact = arithmetic(rng)
        phrasings.setdefault(fact.answer, set()).add(is_held_out(fact.key))
    often = [fates for fates in phrasings.values() if fates != {False}]
    assert len(often) > 500
    products = [fates for answer, fates in phrasings.items() if "*" in answer]
    assert all(False in fates for fates in products)


def test_only_the_values_of_constrained_answers_are_learned(tokenizer: Tokenizer) -> None:
    rng = random.Random(12)
    for _ in range(100):
        fact = constrained_extraction(rng)
        messages = (say("user", fact.question), say("assistant", fact.answer, fact.values))
        token_ids, learned = encode_dialogue(tokenizer, Dialogue("", messages, fact.key))
        kept = [index for index, is_learned in zip(token_ids, learned, strict=True) if is_learned]
        text = tokenizer.decode(kept, skip_special_tokens=False)
        assert text == "".join(map(str, json.loads(fact.answer).values()))


def test_a_word_is_the_same_piece_everywhere() -> None:
    rng = random.Random(13)
    split = pre_tokenizer().pre_tokenize_str
    for _ in range(200):
        name = person(rng)
        [(piece, _)] = split(name)
        for before, after in (("I am ", "."), ('{"name": "', '"}'), ("Hi\n", "!"), ("(", ")")):
            assert piece in [found for found, _ in split(before + name + after)]


def test_held_out_stories_are_not_in_the_training_data() -> None:
    rng = random.Random(4)
    num_stories = 0
    for _ in range(1500):
        for message in conversation(rng).messages:
            if message["role"] == "user" and "story about" in message["content"]:
                num_stories += 1
                assert not is_held_out(message["content"])
    assert num_stories > 50


def test_sums_are_correct() -> None:
    rng = random.Random(6)
    for _ in range(1000):
        left, result = arithmetic(rng).answer.rstrip(".").split(" = ")
        a, sign, b = left.split(" ")
        operations = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}
        assert operations[sign] == int(result)


def test_days_are_correct() -> None:
    rng = random.Random(7)
    monday = date(2024, 1, 1)
    days = {(monday + timedelta(k)).strftime("%A"): k for k in range(7)}
    num_days = 0
    for _ in range(2000):
        match = re.match(r"^(\d+) days (after|before) (\w+) is (\w+)\.$", calendar(rng).answer)
        if match:
            num_days += 1
            count, side, start, end = match.groups()
            step = int(count) if side == "after" else -int(count)
            assert (monday + timedelta(days[start] + step)).strftime("%A") == end
    assert num_days > 200


def test_lists_are_sorted() -> None:
    rng = random.Random(8)
    for _ in range(500):
        fact = sorting(rng)
        items = fact.core.split(", ")
        assert all(re.search(rf"\b{item}\b", fact.question) for item in items)
        if items[0].isdigit():
            numbers = [int(item) for item in items]
            is_descending = any(
                word in fact.question for word in ("descending", "largest to", "high to low")
            )
            assert numbers == sorted(numbers, reverse=is_descending)
        else:
            assert items == sorted(items)


def test_comparisons_are_correct() -> None:
    rng = random.Random(9)
    num_comparisons = 0
    for _ in range(1000):
        fact = comparing(rng)
        match = re.match(r"^Is (\d+) (\w+) than (\d+)\?$", fact.question)
        if match:
            num_comparisons += 1
            a, word, b = match.groups()
            holds = int(a) < int(b) if word in {"smaller", "less"} else int(a) > int(b)
            assert fact.answer.startswith("Yes" if holds else "No")
    assert num_comparisons > 100


def test_extracted_values_occur_in_the_text() -> None:
    rng = random.Random(10)
    for _ in range(500):
        fact = extraction(rng)
        document: dict[str, Any] = json.loads(fact.answer)
        assert document
        assert all(str(value) in fact.question for value in document.values())


def test_arguments_occur_in_the_request_and_match_the_schema() -> None:
    rng = random.Random(11)
    types = {"string": str, "integer": int, "number": int}
    for _ in range(1000):
        case = draw_tool_case(rng)
        schema = case.tool["function"]["parameters"]["properties"]
        assert list(schema) == list(case.arguments)
        for name, value in case.arguments.items():
            assert isinstance(value, types[schema[name]["type"]])
            assert str(value) in case.request
            assert value in schema[name].get("enum", [value])


def test_remembered_values_occur_in_statement_and_answer() -> None:
    rng = random.Random(12)
    for _ in range(300):
        for fact in draw_facts(rng, 3):
            assert fact.value in fact.statement
            assert fact.value in fact.answer


def test_stories_name_all_characters() -> None:
    rng = random.Random(13)
    for _ in range(300):
        story = draw_story(rng)
        assert all(name in story.request and name in story.text for name in story.characters)
        assert 300 <= len(story.text) <= 1500


def test_stories_are_distinct() -> None:
    rng = random.Random(14)
    assert len({draw_story(rng).text for _ in range(300)}) == 300
