"""Owns: the models of the server, and which of them each request is for. Each is in fashion at another time.

Must not know: memory.
"""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from kv_serving.trace import Request

TOKENS_PER_BLOCK = 16


class Model(NamedTuple):
    """A model, and what one token of its KV cache takes."""

    name: str
    token_bytes: int

    @property
    def block_bytes(self) -> int:
        return TOKENS_PER_BLOCK * self.token_bytes


MODELS = (Model("small", 4 << 10), Model("medium", 8 << 10), Model("large", 12 << 10))


def blocks_for(tokens: int) -> int:
    return -(-tokens // TOKENS_PER_BLOCK)


def share_out(requests: Sequence[Request]) -> list[int]:
    """The model of each request. All are always asked a little; the favourite changes with the hour."""
    source = random.Random(7)
    span = max(request.arrival for request in requests) or 1.0
    chosen = []
    for request in requests:
        turn = [request.arrival / span - place / len(MODELS) for place in range(len(MODELS))]
        weights = [0.15 + max(0.0, math.cos(2 * math.pi * part)) ** 2 for part in turn]
        chosen.append(source.choices(range(len(MODELS)), weights)[0])
    return chosen
