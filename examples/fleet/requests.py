"""Owns: the requests as columns: read from the traces of two public services, or generated in their shape.

Must not know: nodes and budgets.
"""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy
from numpy.typing import NDArray

from kv_serving.trace import Request, find_trace, generate_trace
from tensormem.testing.workloads import workload_files

TOKEN_BYTES = 131_072  # keys and values of one token: 32 layers, 8 heads of 128, 2 bytes each, for both
PREFILL_SECONDS = 0.00025  # a token of the prompt
DECODE_SECONDS = 0.04  # a token of the answer
GIB = 1 << 30


@dataclass(frozen=True)
class Workload:
    """What one node is asked for: arrivals in seconds, bytes and seconds of each request; all arrays are as long."""

    name: str
    arrivals: NDArray[numpy.float64]
    nbytes: NDArray[numpy.int64]
    seconds: NDArray[numpy.float64]
    node_bytes: int
    """The memory of a node for caches."""
    generated: bool = False
    """Whether the file was missing and the requests were made up."""

    def __len__(self) -> int:
        return len(self.arrivals)


def _workload(
    name: str, rows: Iterable[tuple[float, int, int]], node_bytes: int, most: int | None, **more: Any
) -> Workload:
    table = numpy.array(sorted(rows)[:most], dtype=numpy.float64).reshape(-1, 3)
    context, answer = table[:, 1], table[:, 2]
    nbytes = ((context + answer) * TOKEN_BYTES).astype(numpy.int64)
    seconds = context * PREFILL_SECONDS + answer * DECODE_SECONDS
    return Workload(name, table[:, 0] - table[0, 0], nbytes, seconds, node_bytes, **more)


def chat(most: int | None = None) -> Workload:
    """Short conversations: an hour of Azure's service."""
    file = find_trace()
    if file is None:
        return _workload("chat", _generated(5.5, 6.7, 0.75), 16 * GIB, most, generated=True)
    with file.open(newline="") as lines:
        rows = [
            (
                datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp(),
                int(row["ContextTokens"]),
                int(row["GeneratedTokens"]),
            )
            for row in csv.DictReader(lines)
        ]
    return _workload("chat", rows, 16 * GIB, most)


def long_prompts(most: int | None = None) -> Workload:
    """Conversations with long prompts: an hour of Mooncake's service."""
    file = next(iter(workload_files("llm/mooncake_conversation_trace.jsonl")), None)
    if file is None:
        return _workload("long prompts", _generated(3.3, 9.0, 0.9), 160 * GIB, most, generated=True)
    with file.open() as lines:
        found = [json.loads(line) for line in lines]
    rows = [(each["timestamp"] / 1000, each["input_length"], each["output_length"]) for each in found]
    return _workload("long prompts", rows, 160 * GIB, most)


def _generated(rate: float, mean: float, spread: float) -> list[Request]:
    return generate_trace(12_000, rate=rate, mean=mean, spread=spread, longest=120_000)
