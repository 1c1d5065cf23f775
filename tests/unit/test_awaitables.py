"""Streams, events and tensors are awaited: other tasks go on while the work is under way."""

import asyncio
import threading

import pytest

import tensormem as tm
from tensormem.testing import simulated_gpu


def test_a_stream_is_awaited_while_another_task_lets_its_work_end() -> None:
    gate = threading.Event()

    async def main() -> list[str]:
        order: list[str] = []
        with tm.Stream("main") as stream:
            stream.launch(gate.wait)
            event = stream.record()

            async def release() -> None:
                order.append("released")
                gate.set()

            task = asyncio.create_task(release())
            assert await stream is stream
            order.append("awaited")
            await task
            assert await event is event and event.done
        return order

    assert asyncio.run(asyncio.wait_for(main(), 30)) == ["released", "awaited"]


def test_what_is_done_is_awaited_at_once_and_gives_itself() -> None:
    async def main() -> None:
        tensor = tm.ones(3)
        assert await tensor is tensor
        with tm.Stream("main") as stream:
            assert await stream is stream

    asyncio.run(main())


def test_a_copy_is_awaited() -> None:
    async def main() -> list[float]:
        far = await tm.ones(3).to("gpu:0")
        return list((await far.to("main")).tolist())

    with simulated_gpu(devices=1):
        assert asyncio.run(main()) == [1.0, 1.0, 1.0]


def test_a_failure_reaches_who_awaits() -> None:
    async def main() -> None:
        stream = tm.Stream("main")
        stream.close()
        await stream

    with pytest.raises(tm.errors.StreamMisuse):
        asyncio.run(main())
