"""Train a small LLaVA that says which shape a picture shows, for the pictures of the documentation.

    python -m tests.e2e.playground.shapes DIRECTORY

It takes five minutes, and requires torch and transformers.
"""

from __future__ import annotations

__all__ = ("Shape", "draw_shape")

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from tests.model.tiny_vision import CONFIGS, PROCESSORS, vision_tokenizer

_STEPS = 1200
_BATCH = 16
_IGNORED = -100  # The label of a token that is not learned.
_SIDE, _NUM_ROWS = 56, 16
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_COLORS = {"red": "#d33", "green": "#2a4", "blue": "#24d", "yellow": "#fc3", "black": "#222"}
_SHAPES = ("circle", "square", "triangle")
_PLACES = {"left": 0.32, "middle": 0.5, "right": 0.68}
_WHERE = {"left": "on the left", "middle": "in the middle", "right": "on the right"}
_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text }}"
    "{% endif %}{% endfor %}{% endif %}{{ '</s>' if m.role == 'assistant' }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


class Shape(NamedTuple):
    """A picture of one shape."""

    color: str
    name: str
    place: str

    @property
    def dialogue(self) -> list[tuple[str, str]]:
        """Questions with their answers."""
        return [
            ("What is in this picture?", f"A {self.color} {self.name}."),
            ("Which color is it?", f"It is {self.color}."),
            (
                "Where is it?",
                f"It is {'in the' if self.place == 'middle' else 'on the'} {self.place}.",
            ),
        ]


def draw_shape(shape: Shape, side: int, size: float = 0.25) -> Image.Image:
    """Return a square picture; `size` is the radius of the shape, as a part of the side."""
    image = Image.new("RGB", (side, side), "white")
    x, y, r = _PLACES[shape.place] * side, side / 2, size * side
    draw, color = ImageDraw.Draw(image), _COLORS[shape.color]
    if shape.name == "circle":
        draw.ellipse((x - r, y - r, x + r, y + r), color)
    elif shape.name == "square":
        draw.rectangle((x - r, y - r, x + r, y + r), color)
    else:
        draw.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], color)
    return image


def _config() -> dict[str, Any]:
    config = CONFIGS["llava"]
    text = config["text_config"] | {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}
    vision = config["vision_config"] | {"hidden_size": 96, "intermediate_size": 192}
    return config | {"text_config": text, "vision_config": vision}


def _batch(seed: int) -> Iterator[Any]:
    """Yield token ids, the pixels and the labels of a batch of dialogues."""
    import torch

    tokenizer, numbers = vision_tokenizer(), random.Random(seed)
    rows: list[tuple[list[int], list[int]]] = []
    images = []
    for _ in range(_BATCH):
        shape = Shape(*map(numbers.choice, (list(_COLORS), _SHAPES, list(_PLACES))))
        image = draw_shape(shape, 4 * _SIDE, numbers.uniform(0.15, 0.3))
        pixels = np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)) / 255
        images.append(((pixels - _MEAN) / _STD).transpose(2, 0, 1))
        first, *others = shape.dialogue
        turns = [first, numbers.choice(others)]
        ids: list[int] = []
        labels: list[int] = []
        for number, (question, answer) in enumerate(turns):
            image_text = "<image>" * _NUM_ROWS if number == 0 else ""
            asked = tokenizer.encode(f"user: {image_text}{question}\nassistant: ").ids
            said = tokenizer.encode(f"{answer}</s>").ids
            ids += [*asked, *said, *tokenizer.encode("\n").ids]
            labels += [_IGNORED] * len(asked) + said + [_IGNORED]
        rows.append((ids, labels))
    length = max(len(ids) for ids, _ in rows)
    yield torch.tensor([ids + [0] * (length - len(ids)) for ids, _ in rows])
    yield torch.tensor(np.stack(images), dtype=torch.float32)
    yield torch.tensor([labels + [_IGNORED] * (length - len(labels)) for _, labels in rows])


def _main(directory: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(**_config())
    model = transformers.LlavaForConditionalGeneration(config)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=_STEPS, pct_start=0.1
    )
    for step in range(_STEPS):
        ids, pixels, labels = _batch(step)
        loss = model(input_ids=ids, pixel_values=pixels, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(step, round(loss.item(), 4), flush=True)  # noqa: T201 - the progress.
    model.save_pretrained(directory)
    (directory / "config.json").write_text(json.dumps(_config()))
    (directory / "preprocessor_config.json").write_text(json.dumps(PROCESSORS["llava"]))
    vision_tokenizer().save(str(directory / "tokenizer.json"))
    settings = {"chat_template": _TEMPLATE, "eos_token": "</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
