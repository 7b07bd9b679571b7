"""Read the picture of an invoice into a Pydantic model, whose schema constrains the generation.

    .venv/bin/python examples/invoice.py MODEL PICTURE

MODEL is one that reads images and small print, such as HF://Qwen/Qwen2.5-VL-3B-Instruct. The schema
makes every answer an invoice; whether it is the one in the picture is checked as far as an invoice
can be: by its sum. This needs the extra `vision`.
"""

from __future__ import annotations

import argparse
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import anyio
from pydantic import BaseModel, Field

from aiomlc import AsyncMLCEngine

Amount = Annotated[str, Field(pattern=r"^\d{1,7}\.\d{2}$")]
INSTRUCTIONS = (
    "Read this invoice. Amounts have two digits after the point, and those of lines are the "
    "quantity times the price of one item."
)


class Line(BaseModel):
    description: str = Field(max_length=60)
    quantity: int = Field(ge=1, le=9999)
    amount: Amount


class Invoice(BaseModel):
    number: str = Field(max_length=20)
    issued: date
    seller: str = Field(max_length=60)
    currency: Literal["EUR", "USD", "GBP", "CHF"]
    lines: list[Line] = Field(min_length=1, max_length=20)
    total: Amount

    @property
    def difference(self) -> Decimal:
        """What the total has more than the lines together."""
        return Decimal(self.total) - sum(Decimal(line.amount) for line in self.lines)


async def read_invoice(engine: AsyncMLCEngine, picture: bytes) -> Invoice:
    """Return the invoice in a picture.

    Raises:
        ValueError: If the context of the model ends before the invoice does.
    """
    completion = await engine.chat.completions.parse(
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": picture}},
                    {"type": "text", "text": INSTRUCTIONS},
                ],
            }
        ],
        response_format=Invoice,
        temperature=0,
    )
    invoice = completion.choices[0].message.parsed
    if invoice is None:
        raise ValueError("the invoice is longer than the context of the model")

    return invoice


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()

    picture = await anyio.Path(arguments.picture).read_bytes()
    async with AsyncMLCEngine(arguments.model) as engine:
        invoice = await read_invoice(engine, picture)
    print(invoice.model_dump_json(indent=2))
    if invoice.difference:
        print(f"Check it: the total differs from the lines by {invoice.difference}.")


if __name__ == "__main__":
    anyio.run(main)
