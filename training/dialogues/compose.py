"""Conversations: random ones for training, and one skill at a time for the evaluation."""

from __future__ import annotations

__all__ = ("SKILLS", "conversation", "held_out_dialogue")

import random
from collections.abc import Callable

from training.dialogues.arithmetic import arithmetic
from training.dialogues.calls import ToolCase, draw_tool_case, fits, offer
from training.dialogues.extraction import constrained_extraction, extraction
from training.dialogues.honesty import honesty
from training.dialogues.knowledge import calendar, facts
from training.dialogues.lists import words_of
from training.dialogues.memory import Remembered, copying, draw_facts, repeating
from training.dialogues.ordering import comparing, counting, sorting
from training.dialogues.records import Dialogue, Fact, Message, is_held_out, say
from training.dialogues.stories import Story, draw_story
from training.dialogues.talk import identity, small_talk
from training.dialogues.words import person, pick

Maker = Callable[[random.Random], Fact]

_PLAIN: dict[str, tuple[Maker, float]] = {
    "identity": (identity, 0.6),
    "greetings": (small_talk, 0.9),
    "arithmetic": (arithmetic, 3.0),
    "counting": (counting, 1.8),
    "calendar": (calendar, 2.0),
    "comparing": (comparing, 5.0),
    "facts": (facts, 1.2),
    "sorting": (sorting, 4.5),
    "extraction": (extraction, 2.2),
    "honesty": (honesty, 0.4),
    "repeating": (repeating, 1.5),
}
_MAKERS = tuple(maker for maker, _ in _PLAIN.values())
_WEIGHTS = tuple(weight for _, weight in _PLAIN.values())

_HELPFUL = (
    "You are a helpful assistant.",
    "You are Pebble, a small helpful assistant.",
    "You are a friendly assistant. Answer briefly.",
    "Answer the user's questions.",
    "You are a helpful AI assistant.",
)


def _draw(rng: random.Random, maker: Maker, *, held_out: bool = False) -> Fact:
    while True:
        fact = maker(rng)
        if is_held_out(fact.key) == held_out:
            return fact


_OPENING_WORDS = frozenset(
    words_of(
        "What Which How Tell Name Count Who Sort Put Is Add Subtract Calculate Compute "
        "Multiply Find Order Explain Write Give Can Do Are Please Today If Extract Where Take "
        "Hello Hi Hey Thanks Thank Bye Good Call Set Get Check Play Translate Send Book Turn "
        "Are When Look Show Track"
    )
)


def _casual(rng: random.Random, text: str) -> str:
    """Sometimes drop the capital or the question mark, or add a please, as users do."""
    draw = rng.random()
    word = text.split(" ", 1)[0].rstrip("?!.,'s")
    if draw < 0.15 and word in _OPENING_WORDS:
        text = text[0].lower() + text[1:]
    if 0.08 < draw < 0.2 and text.endswith("?"):
        text = text[:-1]
    elif 0.2 < draw < 0.24 and text.endswith("?"):
        text = text[:-1] + " please?"
    return text


def _exchange(rng: random.Random, fact: Fact) -> list[Message]:
    return [
        say("user", _casual(rng, fact.question)),
        say("assistant", fact.answer, fact.values),
    ]


def _filler(rng: random.Random) -> list[Message]:
    maker = rng.choices(_MAKERS, _WEIGHTS)[0]
    return _exchange(rng, _draw(rng, maker))


def _plain_system(rng: random.Random, probability: float) -> list[Message]:
    return [say("system", pick(rng, _HELPFUL))] if rng.random() < probability else []


_UPPER = (
    "Answer in upper case.",
    "Always write in capital letters.",
    "Reply in UPPER CASE only.",
    "Write everything in upper case.",
    "Use only capital letters.",
)
_LOWER = (
    "Answer in lower case.",
    "Never use capital letters.",
    "Reply in lower case only.",
    "Write everything in lower case.",
    "Use only lower case letters.",
)
_ONE_WORD = (
    "Answer in one word.",
    "Reply with one word only.",
    "Use only one word.",
    "Give one-word answers.",
    "Answer with a single word.",
)
_BEGIN = (
    "Begin every answer with {w}.",
    "Start each answer with the word {w}.",
    "Always begin with {w}.",
)
_END = (
    "End every answer with {w}.",
    "Finish each answer with the word {w}.",
    "Always end with {w}.",
)
_STARTERS = words_of(
    "Ahoy Sure Hello Yes Well Okay Indeed Right Listen Dear Hey So Now Great Friend Captain"
)


def _styled(rng: random.Random) -> tuple[str, Callable[[Fact], str]]:
    """Draw a system prompt and the function that applies it to an answer."""
    kind = rng.random()
    if kind < 0.25:
        return pick(rng, _UPPER), lambda fact: fact.answer.upper()
    if kind < 0.4:
        return pick(rng, _LOWER), lambda fact: fact.answer.lower()
    if kind < 0.65:
        return pick(rng, _ONE_WORD), lambda fact: fact.core
    word = pick(rng, _STARTERS) if rng.random() < 0.7 else person(rng)
    if kind < 0.85:
        return pick(rng, _BEGIN).format(w=word), lambda fact: f"{word}! {fact.answer}"
    return pick(rng, _END).format(w=word), lambda fact: f"{fact.answer} {word}!"


_STYLED_MAKERS = (calendar, comparing, facts, facts)


def _follow_system(rng: random.Random, *, held_out: bool = False) -> Dialogue:
    prompt, style = _styled(rng)
    if rng.random() < 0.3:
        prompt = pick(rng, _HELPFUL[:2]) + " " + prompt
    messages = [say("system", prompt)]
    key = ""
    turns = rng.choice((1, 1, 2, 3) if held_out else (1, 2, 4, 6, 8))
    for turn in range(turns):
        wants_held_out = held_out and turn == turns - 1
        while True:
            fact = _draw(rng, pick(rng, _STYLED_MAKERS))
            if is_held_out(f"{prompt}|{fact.key}") == wants_held_out and (len(fact.core) < 30):
                break
        key = f"{prompt}|{fact.key}"
        messages += [say("user", fact.question), say("assistant", style(fact))]
    return Dialogue("system", tuple(messages), key)


def _persona(rng: random.Random) -> list[Message]:
    name = person(rng)
    system = pick(rng, ("You are {n}.", "Your name is {n}.", "You are {n}, a helpful assistant."))
    question = pick(
        rng,
        ("What is your name?", "What's your name?", "What are you called?", "Tell me your name."),
    )
    messages = [say("system", system.format(n=name))]
    for _ in range(rng.randint(0, 2)):
        messages += _filler_without_identity(rng)
    return [*messages, say("user", question), say("assistant", f"My name is {name}.")]


def _filler_without_identity(rng: random.Random) -> list[Message]:
    maker = rng.choices(_MAKERS[2:], _WEIGHTS[2:])[0]
    return _exchange(rng, _draw(rng, maker))


def _facts_key(remembered: list[Remembered]) -> str:
    return "|".join(f"{fact.kind}={fact.value}" for fact in remembered)


def _draw_remembered(rng: random.Random, *, held_out: bool) -> list[Remembered]:
    while True:
        drawn = draw_facts(rng, rng.choice((1, 1, 2, 2, 3, 4)))
        if is_held_out(_facts_key(drawn)) == held_out:
            return drawn


def _remember(rng: random.Random, *, held_out: bool = False, fillers: int = 4) -> Dialogue:
    remembered = _draw_remembered(rng, held_out=held_out)
    messages = _plain_system(rng, 0.1)
    if len(remembered) > 1 and rng.random() < 0.35:
        first, second, *later = remembered
        messages += [
            say("user", f"{first.statement} {second.statement}"),
            say("assistant", f"{first.confirmation} {second.confirmation}"),
        ]
    else:
        later = remembered
    for fact in later:
        messages += [say("user", fact.statement), say("assistant", fact.confirmation)]
        if rng.random() < 0.25:
            messages += _filler(rng)
    for _ in range(rng.randint(0, fillers)):
        messages += _filler(rng)
    asked = rng.sample(remembered, 1 if held_out else rng.randint(1, len(remembered)))
    for fact in asked:
        messages += [say("user", fact.question), say("assistant", fact.answer)]
        if not held_out and rng.random() < 0.2:
            messages += _filler(rng)
    return Dialogue("memory", tuple(messages), _facts_key(remembered))


def _call(*cases: ToolCase) -> Message:
    calls = [
        {"type": "function", "function": {"name": case.name, "arguments": case.arguments}}
        for case in cases
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _draw_case(rng: random.Random, *, held_out: bool = False) -> ToolCase:
    while True:
        case = draw_tool_case(rng)
        if is_held_out(f"{case.request}|{case.name}") == held_out:
            return case


def _tool_exchange(rng: random.Random, case: ToolCase) -> list[Message]:
    return [
        say("user", _casual(rng, case.request)),
        _call(case),
        say("tool", case.result),
        say("assistant", case.answer),
    ]


def _draw_cases(rng: random.Random, count: int, *, held_out: bool = False) -> list[ToolCase]:
    """Draw cases whose functions can be offered together, of which only the last is held out."""
    cases = [_draw_case(rng, held_out=held_out)]
    while len(cases) < count:
        case = _draw_case(rng)
        if fits(case, cases):
            cases.insert(0, case)
    return cases


def _use_tools(rng: random.Random, *, held_out: bool = False) -> Dialogue:
    cases = _draw_cases(rng, rng.choice((1, 1, 1, 2, 2, 3)), held_out=held_out)
    tools = offer(rng, cases, rng.randint(len(cases), 4))
    messages = _plain_system(rng, 0.15)
    *previous, last = cases
    for earlier in previous:
        if rng.random() < 0.7:
            messages += _tool_exchange(rng, earlier)
    if rng.random() < 0.25:
        messages += _without_tool(rng)
    if held_out:
        return _end_held_out(rng, messages, last, tools)
    if len(previous) > 0 and rng.random() < 0.2:
        messages += _two_calls(rng, previous[0], last)
    else:
        messages += _tool_exchange(rng, last)
    if rng.random() < 0.3:
        messages += _without_tool(rng)
    return Dialogue("tools", tuple(messages), last.request, tools=tools)


def _drill_tools(rng: random.Random) -> Dialogue:
    """Request each of several functions once: what is hard is which one to call."""
    cases = _draw_cases(rng, rng.randint(3, 7))
    tools = offer(rng, cases, len(cases))
    messages: list[Message] = []
    for case in rng.sample(cases, len(cases)):
        exchange = _tool_exchange(rng, case)
        messages += exchange if rng.random() < 0.2 else exchange[:2]
    return Dialogue("tools", tuple(messages), "", tools=tools)


def _without_tool(rng: random.Random) -> list[Message]:
    """Return an exchange that needs no tool, of a skill for which no tool is ever offered."""
    maker = pick(rng, (identity, small_talk, counting, calendar, comparing, sorting))
    return _exchange(rng, _draw(rng, maker))


def _two_calls(rng: random.Random, first: ToolCase, second: ToolCase) -> list[Message]:
    request = f"{first.request.rstrip('?.')} and then: {second.request}"
    return [
        say("user", request),
        _call(first, second),
        say("tool", first.result),
        say("tool", second.result),
        say("assistant", f"{first.answer} {second.answer}"),
    ]


def _end_held_out(
    rng: random.Random,
    messages: list[Message],
    case: ToolCase,
    tools: tuple[dict[str, object], ...],
) -> Dialogue:
    exchange = _tool_exchange(rng, case)
    kind = rng.random()
    if kind < 0.55:
        end = exchange[:2]
    elif kind < 0.85:
        end = exchange
    else:
        end = _without_tool(rng)
    return Dialogue("tools", (*messages, *end), case.request, tools=tools)


def _story_exchange(story: Story) -> list[Message]:
    return [say("user", story.request), say("assistant", story.text)]


def _write_story(rng: random.Random, *, held_out: bool = False) -> Dialogue:
    while True:
        story = draw_story(rng)
        if is_held_out(story.request) == held_out:
            break
    return Dialogue(
        "stories", tuple(_story_exchange(story)), story.request, characters=story.characters
    )


def _chat(rng: random.Random, turns: int) -> list[Message]:
    messages = _plain_system(rng, 0.12)
    for _ in range(turns):
        messages += _filler(rng)
    return messages


_DRILLED: tuple[tuple[Maker, float], ...] = (
    (arithmetic, 7.0),
    (comparing, 4.0),
    (extraction, 3.5),
    (constrained_extraction, 1.0),
    (sorting, 2.4),
    (calendar, 0.5),
    (counting, 0.9),
    (repeating, 0.4),
    (copying, 1.6),
    (small_talk, 0.5),
    (identity, 0.5),
    (honesty, 0.4),
)
_DRILL_MAKERS = tuple(maker for maker, _ in _DRILLED)
_DRILL_WEIGHTS = tuple(weight for _, weight in _DRILLED)


def _drill(rng: random.Random) -> list[Message]:
    """Return several exchanges of the skills that need the most practice."""
    messages: list[Message] = []
    for _ in range(rng.randint(1, 10)):
        maker = rng.choices(_DRILL_MAKERS, _DRILL_WEIGHTS)[0]
        messages += _exchange(rng, _draw(rng, maker))
    return messages


def _long_chat(rng: random.Random) -> list[Message]:
    messages = list(_remember(rng, fillers=8).messages)
    for _ in range(rng.randint(3, 9)):
        if rng.random() < 0.12:
            messages += list(_write_story(rng).messages)
        else:
            messages += _filler(rng)
    return messages


def _short_chat(rng: random.Random) -> list[Message]:
    return _chat(rng, min(1 + int(rng.expovariate(0.45)), 12))


def _chat_of(maker: Callable[[random.Random], list[Message]]) -> Callable[..., Dialogue]:
    return lambda rng: Dialogue("chat", tuple(maker(rng)), "")


_CONVERSATIONS: dict[Callable[..., Dialogue], int] = {  # Percent.
    _chat_of(_drill): 37,
    _drill_tools: 18,
    _chat_of(_short_chat): 9,
    _remember: 5,
    _follow_system: 11,
    _chat_of(_persona): 1,
    _use_tools: 12,
    _write_story: 5,
    _chat_of(_long_chat): 2,
}
_CONVERSATION_MAKERS = tuple(_CONVERSATIONS)
_CONVERSATION_WEIGHTS = tuple(_CONVERSATIONS.values())


def conversation(rng: random.Random) -> Dialogue:
    """Draw a training conversation, which contains no held-out combination."""
    maker = rng.choices(_CONVERSATION_MAKERS, _CONVERSATION_WEIGHTS)[0]
    return maker(rng)


SKILLS = (*_PLAIN, "memory", "system", "tools", "stories")

_HELD_OUT_SKILLS: dict[str, Callable[..., Dialogue]] = {
    "memory": _remember,
    "system": _follow_system,
    "tools": _use_tools,
    "stories": _write_story,
}


def held_out_dialogue(skill: str, rng: random.Random) -> Dialogue:
    """Draw a conversation whose last answer depends on a held-out combination."""
    if skill in _HELD_OUT_SKILLS:
        return _HELD_OUT_SKILLS[skill](rng, held_out=True)
    maker, _ = _PLAIN[skill]
    fact = _draw(rng, maker, held_out=True)
    messages = _chat(rng, rng.choice((0, 0, 0, 1, 2)))
    return Dialogue(skill, (*messages, *_exchange(rng, fact)), fact.key)
