"""DMA-BUFs keep what every maker of memory keeps: the crossings, asked in the machine that has such memory."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crossings import test_promises
from crossings.makers import Maker, of_dma

MAKER = Maker("memory='dma'", of_dma, takes_tag=of_dma)
# A kind of main memory has no part in the first; the second has all makers in one process, and the suite asks for dma.
_OF_OTHERS = (
    "test_when_any_call_of_a_gpus_driver_fails_nothing_is_lost",
    "test_a_process_that_ends_with_memory_of_every_maker_open_ends_well",
)
PROMISES = [case for name, case in vars(test_promises).items() if name.startswith("test_") and name not in _OF_OTHERS]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_dma_buf_keeps(promise: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: dict[str, Any] = {"maker": MAKER, "tmp_path": tmp_path, "monkeypatch": monkeypatch}
    promise(**{name: there[name] for name in inspect.signature(promise).parameters})
