"""Some questions to BIRD and its answers as text, for people."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from flock.edge.bird.control import BirdControl


def ask_bird(path: Path, questions: Sequence[str], *, patience: float) -> str:
    """BirdError if it is not there, TimeoutError if it takes longer."""
    return asyncio.run(asyncio.wait_for(_ask(path, questions), patience))


async def _ask(path: Path, questions: Sequence[str]) -> str:
    bird = await BirdControl.connect(path)
    try:
        told = []
        for question in questions:
            reply = await bird.command(question)
            told.append(f"bird> {question}\n{reply.text}\n")
        return "\n".join(told)
    finally:
        bird.close()
