"""Short stories from templates, about the characters in the prompt."""

from __future__ import annotations

__all__ = ("Story", "draw_story")

import random
from dataclasses import dataclass

from training.dialogues.lists import words_of
from training.dialogues.words import ITEMS, person, pick, place

_KINDS = words_of(
    "fox bear girl boy rabbit cat dog mouse owl robot dragon wizard farmer baker sailor "
    "king queen duck turtle frog"
)
_PLACES = (
    *("in the forest", "by the sea", "on a small farm", "in a quiet village", "near a wide river"),
    *(
        "on a high hill",
        "in an old castle",
        "in a big city",
        "on a green island",
        "under a tall mountain",
    ),
)
_OPENINGS = (
    "Once upon a time, {who} lived {where}.",
    "Long ago, {who} lived {where}.",
    "There once was a home {where}, and in it lived {who}.",
    "Not far from here, {where}, lived {who}.",
    "{where_up}, {who} had a small house with a red door.",
)
_MOODS = (
    "Every morning {a} went for a long walk and looked at the clouds.",
    "{a} was kind and liked to sing in the evening.",
    "{a} was curious and asked many questions.",
    "All day long {a} worked hard, and at night {a} watched the stars.",
    "{a} was small but very brave.",
    "Nobody laughed as loudly as {a} did.",
)
_WISHES = (
    "One day {a} wanted to find a {thing}.",
    "More than anything, {a} wished for a {thing}.",
    "One morning {a} lost a {thing} and felt sad.",
    "One day {a} heard of a magic {thing} that was hidden far away.",
    "One evening {a} dreamed of a golden {thing}.",
)
_OBSTACLES = (
    "But the way was long and a cold wind began to blow.",
    "But a deep river was in the way, and there was no bridge.",
    "But soon it was dark, and the path was hard to see.",
    "But the rain fell for three days and the road was full of mud.",
    "But a high wall stood there, and the gate was closed.",
    "But the snow was deep, and every step was slow.",
)
_ALONE = (
    "{a} sat down on a stone and thought for a while.",
    "{a} did not give up and tried again and again.",
    "{a} took a deep breath and went on, step by step.",
    "Then {a} had a good idea and built a little raft out of wood.",
    "{a} waited until the sun came back and then climbed up slowly.",
)
_MEETINGS = (
    "Then {a} met {b}, who was sitting under a tree.",
    "Just then {b} came along the road and said hello.",
    "There {a} heard a voice. It was {b}, who needed company.",
    "At that moment {b} looked out of a window and waved.",
)
_HELPS = (
    '"I will help you," said {b}. "Together we are strong."',
    '"Do not worry," said {b}. "I know another way."',
    '{b} smiled and said, "Two friends see more than one."',
    '"Come with me," said {b}, and they went on side by side.',
)
_THIRDS = (
    "A little later {c} joined them and carried a bright lantern.",
    "On the way they found {c}, who was hungry, and they shared their bread.",
    "Suddenly {c} jumped out from behind a bush and made them laugh.",
    "In the next valley {c} was waiting with a warm soup.",
)
_FINDS = (
    "At last the {thing} was there, shining in the light.",
    "Behind an old tree they saw it: the {thing}.",
    "And then, in a small box, there was the {thing}.",
    "The {thing} had been very close all the time.",
)
_FINDS_ALONE = (
    "At last the {thing} was there, shining in the light.",
    "Behind an old tree it lay: the {thing}.",
    "And then, in a small box, there was the {thing}.",
    "The {thing} had been very close all the time.",
)
_ENDINGS_ALONE = (
    "{a} went home happy and slept well that night.",
    "From that day on, {a} was never afraid again. The end.",
    "{a} put the {thing} on a shelf and smiled. The end.",
    "And {a} learned that patience is worth more than gold.",
)
_ENDINGS = (
    "{all} went home together and had a big party.",
    "From that day on, {all} were the best of friends. The end.",
    "In the evening {all} sat by the fire and told the story again.",
    "And {all} lived happily for many years.",
    "{all} laughed and danced until the moon came up. The end.",
)


@dataclass(frozen=True, slots=True)
class Story:
    """A request, a story that fits it, and its characters."""

    request: str
    text: str
    characters: tuple[str, ...]


def draw_story(rng: random.Random) -> Story:
    """Draw a story about one to three characters and perhaps a place and a thing."""
    names: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        name = person(rng)
        if name not in names:
            names.append(name)
    kinds = [pick(rng, _KINDS) if rng.random() < 0.5 else "" for _ in names]
    where = pick(rng, _PLACES) if rng.random() < 0.8 else f"in {place(rng)}"
    thing = pick(rng, ITEMS)
    shows_place, shows_thing = rng.random() < 0.4, rng.random() < 0.4
    request = _request(
        rng, _listed(names, kinds), where if shows_place else "", thing if shows_thing else ""
    )
    if not shows_place and where.startswith("in ") and where not in _PLACES:
        where = pick(rng, _PLACES)
    return Story(request, _write(rng, names, kinds, (where, thing)), tuple(names))


def _introduced(name: str, kind: str) -> str:
    article = "an" if kind[:1] in "aeiou" else "a"
    return f"{article} {kind} called {name}" if kind else name


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _listed(names: list[str], kinds: list[str]) -> str:
    return _joined([_introduced(name, kind) for name, kind in zip(names, kinds, strict=True)])


def _request(rng: random.Random, who: str, where: str, thing: str) -> str:
    opening = pick(
        rng,
        (
            "Tell me a story about {w}",
            "Write a short story about {w}",
            "Tell a story about {w}",
            "Can you tell me a story about {w}",
            "Write a story about {w}",
            "Please tell me a short story about {w}",
            "I want to hear a story about {w}",
        ),
    ).format(w=who)
    parts = opening + (f" {where}" if where else "") + (f" and a {thing}" if thing else "")
    return parts + ("?" if opening.startswith("Can") else ".")


def _write(rng: random.Random, names: list[str], kinds: list[str], setting: tuple[str, str]) -> str:
    where, thing = setting
    words = {
        "a": names[0],
        "b": names[1] if len(names) > 1 else "",
        "c": names[2] if len(names) > 2 else "",
        "all": _joined(names),
        "who": _introduced(names[0], kinds[0]),
        "where": where,
        "where_up": where[0].upper() + where[1:],
        "thing": thing,
    }
    parts = [_OPENINGS, _MOODS, _WISHES, _OBSTACLES]
    if len(names) == 1 or rng.random() < 0.3:
        parts.append(_ALONE)
    if len(names) > 1:
        parts += [_MEETINGS, _HELPS]
    if len(names) > 2:
        parts.append(_THIRDS)
    parts += [_FINDS, _ENDINGS] if len(names) > 1 else [_FINDS_ALONE, _ENDINGS_ALONE]
    if rng.random() < 0.3:
        parts.insert(2, _MOODS)
    sentences: list[str] = []
    for choices in parts:
        template = pick(rng, [choice for choice in choices if choice not in sentences])
        sentences.append(template)
    written = [sentence.format(**words) for sentence in sentences]
    middle = rng.randint(2, len(written) - 2)
    if rng.random() < 0.5:
        return " ".join(written[:middle]) + "\n\n" + " ".join(written[middle:])
    return " ".join(written)
