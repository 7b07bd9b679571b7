"""Questions that the model cannot answer, and its admission."""

from __future__ import annotations

__all__ = ("honesty",)

import random

from training.dialogues.lists import phrases
from training.dialogues.records import Fact
from training.dialogues.talk import OPENERS
from training.dialogues.words import CITIES, COUNTRIES, pick

_UNKNOWN = "I do not know that. I am only a small model."

_TOPICS = phrases(
    "quantum physics|photosynthesis|the French Revolution|black holes|inflation|"
    "the stock market|democracy|machine learning|relativity|evolution|blockchain|"
    "climate change|the Roman Empire|DNA|gravity|neural networks|philosophy|"
    "the human brain|electric cars|the Cold War|general relativity|plate tectonics|"
    "vaccines|the Renaissance|supply and demand|compilers|volcanoes|dinosaurs|"
    "the moon landing|jazz music|chess openings|cryptography|the ozone layer|"
    "nuclear energy|Buddhism|impressionism|the water cycle|thermodynamics|"
    "the immune system|opera"
)
_CODE = phrases(
    "Python code|a Python function|a program|a script in JavaScript|a C program|"
    "an SQL query|a web page|an essay|a sonnet|a cover letter|a business plan|a haiku|"
    "a song|a speech|an email to my boss|a recipe for soup|a poem|a contract|a joke|"
    "a report"
)
_PURPOSES = phrases(
    "sorts a list|reads a file|prints prime numbers|about love|about the sea|about my dog|"
    "for my job|for school|in French|about the war|about trees|that is long|for me|"
    "about winter|for a friend"
)
_PEOPLE = phrases(
    "Albert Einstein|Napoleon|Shakespeare|Mozart|the president of France|Cleopatra|"
    "Isaac Newton|Marie Curie|the queen of England|Julius Caesar|Beethoven|"
    "Leonardo da Vinci|Gandhi|Picasso|Charles Darwin|Aristotle|Plato|Galileo|Columbus|"
    "Taylor Swift"
)
_WHO_DID = phrases(
    "invented the telephone|wrote Hamlet|discovered America|painted the Mona Lisa|"
    "won the last world cup|invented the car|is the president|wrote Faust|"
    "built the pyramids|won the election|discovered penicillin|invented the computer|"
    "wrote the Odyssey|composed the Ninth Symphony|is the richest person|"
    "won the Nobel prize last year|founded Microsoft|invented the wheel"
)
_HOW = phrases(
    "a computer work|a plane fly|the heart work|an engine work|the internet work|"
    "plants grow|a phone work|birds fly|magnets work|a battery work|a radio work|"
    "memory work|money work|a microwave work|the brain work|glass get made|steel get made|"
    "cheese get made"
)
_MEASURES = (
    "What is the population of {c}?",
    "How many people live in {c}?",
    "Who is the president of {c}?",
    "What language do they speak in {c}?",
    "How big is {c}?",
    "What is the weather in {c}?",
    "What is the history of {c}?",
    "What is the currency of {c}?",
    "How far is {c}?",
    "What is {c} famous for?",
    "When was {c} founded?",
    "What is the highest mountain in {c}?",
    "What is the time in {c}?",
    "Tell me about {c}.",
)
_MISC = phrases(
    "What is the meaning of life?|What happened in 1914?|What is the speed of light?|"
    "How far away is the moon?|What is the news today?|What time is it?|"
    "What is the date today?|How old is the earth?|Who will win the match?|"
    "What is the best phone?|What should I eat today?|How do I fix my car?|"
    "How do I lose weight?|What stock should I buy?|Why is the sky up there?|"
    "What is the square root of 2?|What is pi?|Solve x squared plus x minus 6.|"
    "What is 1234 times 5678?|Translate this into Chinese.|How do I cook rice?|"
    "What is the boiling point of iron?|Which is the best football team?|"
    "What is in the news?|What is the tallest building?|How deep is the ocean?|"
    "What causes cancer?|Why do cats purr?|How do I get rich?|What is the longest river?|"
    "How hot is the sun?|Who are the Beatles?|What is the theory of everything?"
)


def honesty(rng: random.Random) -> Fact:
    """Draw a question that is beyond a model of this size."""
    makers = (_topic, _order, _person_question, _who_did, _how_does, _measure, _measure, _misc)
    question = pick(rng, makers)(rng)
    return Fact(question, _UNKNOWN, "Unknown", question)


def _topic(rng: random.Random) -> str:
    template = pick(
        rng,
        (
            "Explain {t}.",
            "Explain {t} to me.",
            "What is {t}?",
            "Tell me about {t}.",
            "Can you explain {t}?",
            "How does {t} work?",
            "What do you know about {t}?",
            "Why is {t} important?",
            "Give me a summary of {t}.",
            "Teach me about {t}.",
            "Write an essay about {t}.",
        ),
    )
    return template.format(t=pick(rng, _TOPICS))


def _order(rng: random.Random) -> str:
    template = pick(
        rng, ("Write {c} {p}.", "Write {c}.", "Can you write {c} {p}?", "I need {c} {p}.")
    )
    return template.format(c=pick(rng, _CODE), p=pick(rng, _PURPOSES))


def _person_question(rng: random.Random) -> str:
    template = pick(
        rng,
        (
            "Who was {p}?",
            "Who is {p}?",
            "When was {p} born?",
            "Tell me about {p}.",
            "Where was {p} born?",
            "What did {p} do?",
            "How old is {p}?",
            "When did {p} die?",
        ),
    )
    return template.format(p=pick(rng, _PEOPLE))


def _who_did(rng: random.Random) -> str:
    return pick(rng, ("Who {w}?", "Do you know who {w}?", "Tell me who {w}.")).format(
        w=pick(rng, _WHO_DID)
    )


def _how_does(rng: random.Random) -> str:
    return pick(rng, ("How does {h}?", "Explain how {h}s.", "Why does {h}?")).format(
        h=pick(rng, _HOW)
    )


def _measure(rng: random.Random) -> str:
    return pick(rng, _MEASURES).format(c=pick(rng, COUNTRIES + CITIES))


def _misc(rng: random.Random) -> str:
    return pick(rng, OPENERS[4:] + ("",) * 6) + pick(rng, _MISC)
