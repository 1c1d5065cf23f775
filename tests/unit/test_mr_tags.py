"""Tags: what an allocation is called, for one thread or asynchronous task."""

import asyncio
import pickle
import threading

import pytest

import tensormem as tm
from tensormem import errors, mr

heap = mr.HostMemoryResource()


def current() -> str:
    return heap.allocate(1).tag


def test_a_scope_tags_what_is_not_tagged_itself() -> None:
    with tm.tag("outer"):
        assert (current(), heap.allocate(1, tag="own").tag) == ("outer", "own")
        with tm.tag("inner"):
            assert current() == "inner"
        assert current() == "outer"
    assert current() == "untagged"


def test_a_scope_ends_when_its_body_raises() -> None:
    with pytest.raises(KeyError), tm.tag("failing"):
        raise KeyError
    assert current() == "untagged"


def test_one_scope_may_be_entered_again_and_inside_itself() -> None:
    scope = tm.tag("again")
    with scope, tm.tag("between"), scope:
        assert current() == "again"
    assert current() == "untagged"
    with scope:
        assert current() == "again"


def test_threads_do_not_see_each_others_tags() -> None:
    inside, seen = threading.Barrier(2), dict[str, str]()

    def work(name: str) -> None:
        with tm.tag(name):
            inside.wait()
            seen[name] = current()
            inside.wait()

    with tm.tag("main"):
        threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (seen, current()) == ({"a": "a", "b": "b"}, "main")


def test_tasks_do_not_see_each_others_tags_even_of_one_scope() -> None:
    shared = tm.tag("shared")

    async def stay(entered: asyncio.Event, leave: asyncio.Event) -> str:
        with shared:
            entered.set()
            await leave.wait()
            return current()

    async def main() -> None:
        events = [asyncio.Event() for _ in range(4)]
        first = asyncio.create_task(stay(events[0], events[1]))
        await events[0].wait()
        second = asyncio.create_task(stay(events[2], events[3]))
        await events[2].wait()
        assert current() == "untagged"
        events[1].set()  # the first one in is the first one out
        assert await first == "shared"
        events[3].set()
        assert await second == "shared"

    asyncio.run(main())
    assert current() == "untagged"


def test_a_task_starts_with_the_tag_it_was_made_under() -> None:
    async def tagged() -> str:
        return current()

    async def main() -> str:
        with tm.tag("around"):
            task = asyncio.create_task(tagged())
        return await task

    assert asyncio.run(main()) == "around"


@pytest.mark.parametrize("text", ["", "kv-cache", "Wörter, Leerzeichen; 層", "x" * 1000, "nul\0inside"])
def test_any_text_is_a_tag(text: str) -> None:
    assert heap.allocate(1, tag=text).tag == (text or heap.allocate(1, tag="").tag)
    with tm.tag(text):
        assert current() == heap.allocate(1, tag=text).tag


@pytest.mark.parametrize("nonsense", [None, 7, b"bytes", object()])
def test_what_is_no_text_is_no_tag(nonsense: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="a tag is text"):
        tm.tag(nonsense)


def test_a_scope_is_sent_to_another_process_by_its_text() -> None:
    with pickle.loads(pickle.dumps(tm.tag("travelling"))):
        assert current() == "travelling"


def test_tags_pass_through_a_stack() -> None:
    class PassingOn(mr.DeviceMemoryResource):
        """Changes nothing."""

    faults = mr.FaultInjectionResourceAdaptor(mr.HostMemoryResource(), tag="doomed")
    stack = mr.StatisticsResourceAdaptor(PassingOn(mr.LimitingResourceAdaptor(faults, "1MiB")))
    with tm.tag("fine"):
        assert stack.allocate(1).tag == "fine"
    with tm.tag("doomed"), pytest.raises(errors.OutOfMemory):
        stack.allocate(1)
    assert faults.injected_faults == 1
