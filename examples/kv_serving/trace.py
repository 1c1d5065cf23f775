"""Owns: the requests: read from the trace of a public inference service, or generated in the same shape.

Must not know: models and memory.
"""

import csv
import json
import random
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tensormem.testing.workloads import workload_files

GENERATED_REQUESTS = 19_366


class Request(NamedTuple):
    """One conversation turn: when it comes, in seconds, and its tokens in and out."""

    arrival: float
    context: int
    generated: int

    @property
    def tokens(self) -> int:
        return self.context + self.generated


def find_trace() -> Path | None:
    """The recorded trace of this machine (`TENSORMEM_DATA`), or None."""
    return next(iter(workload_files("llm/AzureLLMInferenceTrace_conv.csv")), None)


def find_conversations() -> Path | None:
    """The second recorded trace of this machine, with longer contexts, or None."""
    return next(iter(workload_files("llm/mooncake_conversation_trace.jsonl")), None)


def read_conversations(file: Path, most: int | None = None) -> list[Request]:
    """One JSON object a line: milliseconds, and tokens in and out."""
    with file.open() as lines:
        found = [json.loads(line) for line in islice(lines, most)]
    return [Request(each["timestamp"] / 1000, each["input_length"], each["output_length"]) for each in found]


def read_trace(file: Path, most: int | None = None) -> list[Request]:
    requests: list[Request] = []
    start: datetime | None = None
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            when = datetime.fromisoformat(row["TIMESTAMP"][:26])
            start = start or when
            seconds = (when - start).total_seconds()
            requests.append(Request(seconds, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
            if len(requests) == most:
                break
    return requests


def generate_trace(
    most: int | None = None, *, rate: float = 5.5, mean: float = 6.7, spread: float = 0.75, longest: int = 14_000
) -> list[Request]:
    """Arrivals at random, `rate` a second; contexts drawn from a long-tailed distribution; answers of about 200."""
    source = random.Random(2023)
    requests, now = [], 0.0
    for _ in range(GENERATED_REQUESTS if most is None else most):
        now += source.expovariate(rate)
        context = min(longest, int(source.lognormvariate(mean, spread)) + 1)
        requests.append(Request(now, context, min(1000, int(source.lognormvariate(5.1, 0.7)) + 1)))
    return requests
