"""Promise: an object is constructed once. A second `__init__` is refused and changes nothing, for every class that
there is: one that is in neither table fails here."""

import enum
import importlib
import inspect
import pkgutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensormem as tm
import tensormem._core as core
from support.constructions import HOST, Arguments, call_with, heap
from tensormem import errors, gl, mr, pools
from tensormem.streams import Stream
from tensormem.testing.gpus import simulated_gpu

PUBLIC = ("", ".mr", ".pools", ".vmm", ".memories", ".sharing", ".images", ".gl", ".streams", ".trace", ".tensor")

GPU: dict[type, Callable[[], Arguments]] = {
    core.GpuAsyncMemoryResource: call_with,
    core.GpuMemoryResource: call_with,
    core.ManagedMemoryResource: call_with,
}
# Made by calls of others, or in other ways; each has a test below, or nothing to construct.
ELSEWHERE = {
    "CacheRange": "refuses __init__",
    "Accesses": "a counter that storages make; it has no __init__",
    "BlockView": "made by a block cache",
    "Bracket": "refuses __init__",
    "Budget": "refuses __init__",
    "BufferOwner": "refuses __init__",
    "ClaimableBudget": "refuses __init__",
    "ComputeChoice": "a value",
    "ComputeDevice": "a value",
    "CsvSink": "below: it needs a file",
    "DType": "a value",
    "DeviceBlock": "refuses __init__",
    "DeviceMemoryResource": "below, by a subclass",
    "Ending": "refuses __init__",
    "ExplainedFunction": "made by explained_function; it has no __init__",
    "DmaMemoryResource": "below: its memory needs a device",
    "ElementType": "refuses __init__",
    "ForeignTensor": "refuses __init__",
    "Frame": "made by FrameRing.read",
    "GlContext": "below: it needs OpenGL",
    "GlFence": "below: it needs OpenGL",
    "GlLibrary": "a table of functions; owns nothing",
    "Channel": "below: it has another end",
    "ChannelListener": "below: it needs a path",
    "Held": "made by a copy; it has no __init__",
    "KindMemoryResource": "below: it makes nothing by a size alone",
    "KindRequest": "refuses __init__",
    "Lent": "made by a copy; it has no __init__",
    "Loan": "made by an export; it has no __init__",
    "LogicalMemorySpace": "a value",
    "MapHold": "below: it needs a map",
    "PixelBuffer": "below: it needs OpenGL",
    "Latch": "has no __init__",
    "QueuedAccess": "refuses __init__",
    "Recording": "below: it needs a file",
    "Release": "refuses __init__",
    "RingFile": "refuses __init__",
    "SharedBudget": "refuses __init__",
    "SlotHold": "refuses __init__",
    "Tenant": "made by TenantPool.register",
    "Texture": "below: it needs OpenGL",
    "Trace": "a view of events; made by open_trace",
    "WritableFrame": "made by FrameRing.write",
    "using": "below: it makes nothing",
    "_BlockView": "made by a block cache; it has no __init__",
    "_Operand": "made by a call of a driver; it has no __init__",
}


def _all_classes() -> set[type]:
    modules = [importlib.import_module(f"tensormem{name}") for name in PUBLIC]
    found = {getattr(module, name) for module in modules for name in module.__all__}
    for each in pkgutil.iter_modules(core.__path__):
        if not each.name.startswith("lib"):
            module = importlib.import_module(f"{core.__name__}.{each.name}")
            found |= {value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__}
    return {value for value in found if inspect.isclass(value) and not _is_value(value)}


def _is_value(cls: type) -> bool:
    kinds = (BaseException, tuple, str, int, enum.Enum)
    return issubclass(cls, kinds) or hasattr(cls, "__dataclass_params__") or bool(getattr(cls, "_is_protocol", False))


def _only_the_core_makes(cls: Any) -> bool:
    try:
        cls.__new__(cls)
    except TypeError as refused:
        return "come from" in str(refused) or "comes from" in str(refused) or "are opened by" in str(refused)
    return False


def test_every_class_is_asked() -> None:
    known = {*HOST, *GPU}
    missing = [cls for cls in _all_classes() if cls not in known and not _only_the_core_makes(cls)]
    assert sorted({cls.__name__ for cls in missing} - set(ELSEWHERE) - {"_Hold"}) == []


def _refuses_another(made: Any, arguments: Arguments) -> None:
    args, kwargs = arguments
    before = repr(made)
    for _ in range(2):
        with pytest.raises(errors.InvalidArgument, match="exists already, and __init__ runs once"):
            made.__init__(*args, **kwargs)
    for nonsense in ((), (None,), (made,), (3, "x"), (made, made, made)):
        with pytest.raises((errors.TensormemError, TypeError)):
            made.__init__(*nonsense)
    assert repr(made) == before


@pytest.mark.parametrize("cls", HOST, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_a_second_init_is_refused_and_changes_nothing(cls: Any) -> None:
    args, kwargs = HOST[cls]()
    made = cls(*args, **kwargs)
    _refuses_another(made, HOST[cls]() if cls not in (core.RingReader, core.RingWriter) else (args, kwargs))
    if isinstance(made, mr.DeviceMemoryResource) and cls not in (core.CallbackMemoryResource,):
        made.deallocate(made.allocate(64))


@pytest.mark.parametrize("cls", GPU, ids=lambda cls: cls.__name__)
def test_a_second_init_of_a_gpu_resource_is_refused(cls: Any) -> None:
    with simulated_gpu(devices=1):
        made = cls()
        block = made.allocate(64)
        _refuses_another(made, call_with())
        made.deallocate(block)


def test_a_block_survives_the_second_init_of_its_resource() -> None:
    pool = mr.PoolMemoryResource(heap())
    block = pool.allocate(64)
    with pytest.raises(errors.InvalidArgument):
        pool.__init__(heap())  # type: ignore[misc]
    memoryview(block)[:3] = b"abc"
    pool.deallocate(block)
    assert block.state == "freed"


def test_a_subclass_that_initialises_its_base_twice_is_refused() -> None:
    class Twice(mr.PoolMemoryResource):
        def __init__(self) -> None:
            super().__init__(heap())
            super().__init__(heap())

    class Adaptor(mr.DeviceMemoryResource):
        def __init__(self) -> None:
            super().__init__(heap())
            mr.DeviceMemoryResource.__init__(self, heap())

    for cls in (Twice, Adaptor):
        with pytest.raises(errors.InvalidArgument, match=f"this {cls.__name__} exists already"):
            cls()


def test_the_init_of_another_class_is_refused() -> None:
    made = heap()
    with pytest.raises(errors.InvalidArgument):
        mr.DeviceMemoryResource.__init__(made, heap())
    made.deallocate(made.allocate(64))


def test_what_the_core_made_is_not_constructed_again() -> None:
    tensor = tm.zeros(4)
    made: list[tuple[Any, Arguments]] = [
        (tensor, call_with(tensor.storage, "float32", 4)),
        (tensor.storage, call_with(4096, 0, owner=None, space=tm.main, memory="mem", device=(1, 0))),
        (Stream.default(tm.drivers.host()), call_with(tm.drivers.host())),
    ]
    for value, arguments in made:
        _refuses_another(value, arguments)


def test_a_construction_that_failed_is_not_tried_again() -> None:
    made = mr.LimitingResourceAdaptor.__new__(mr.LimitingResourceAdaptor)
    with pytest.raises(errors.InvalidSize):
        made.__init__(heap(), -1)  # type: ignore[misc]
    with pytest.raises(errors.InvalidArgument, match="exists already"):
        made.__init__(heap(), 64)  # type: ignore[misc]
    with pytest.raises(errors.InvalidArgument, match="never initialised"):
        made.allocate(64)


def test_one_of_many_threads_constructs() -> None:
    for _ in range(50):
        made = mr.PoolMemoryResource.__new__(mr.PoolMemoryResource)
        start, outcomes = threading.Barrier(4), list[str]()

        def construct(made: Any = made, start: threading.Barrier = start, outcomes: list[str] = outcomes) -> None:
            start.wait()
            try:
                made.__init__(heap())
                outcomes.append("made")
            except errors.InvalidArgument:
                outcomes.append("refused")

        threads = [threading.Thread(target=construct) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["made", "refused", "refused", "refused"]
        made.deallocate(made.allocate(64))


def test_an_argument_that_constructs_the_object_again_is_refused() -> None:
    class Sly:
        def __index__(self) -> int:
            made.__init__(heap(), 64)  # type: ignore[misc]
            return 64

    made = mr.LimitingResourceAdaptor.__new__(mr.LimitingResourceAdaptor)
    with pytest.raises(errors.InvalidArgument, match="exists already"):
        made.__init__(heap(), Sly())  # type: ignore[misc]


def test_owners_of_files_and_sockets_are_constructed_once(tmp_path: Path) -> None:
    from tensormem.trace.recording import Recording

    _refuses_another(core.CsvSink(tmp_path / "log"), call_with(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    _refuses_another(Recording(tmp_path / "a.tmem"), call_with(tmp_path / "b.tmem"))
    with tm.Channel.listen(tmp_path / "door") as listener:
        _refuses_another(listener, call_with(tmp_path / "door"))
    here, there = tm.Channel.pair()
    with here, there:
        _refuses_another(here, call_with(None))
    with tm.FrameRing(2, 4) as ring:
        with ring.write() as frame, pytest.raises(errors.InvalidArgument, match="exists already"):
            frame.__init__(None, None, None, 0)  # type: ignore[misc]
        with ring.read(timeout=1) as seen, pytest.raises(errors.InvalidArgument, match="exists already"):
            seen.__init__(None, None, None)  # type: ignore[misc]
        _refuses_another(ring.as_readonly(), call_with(2, 4))
    tenants = pools.TenantPool("8MiB")
    tenant = tenants.register("a", "4MiB")
    with pytest.raises(errors.InvalidArgument, match="exists already"):
        tenant.__init__(None, "b", 1, page_size=1, device="host")  # type: ignore[misc]
    with tm.zeros(4).map("r") as mapped:
        hold = importlib.import_module("tensormem._core.tensor").MapHold(mapped)
        _refuses_another(hold, call_with(mapped))
        hold.release()


@pytest.mark.usefixtures("opengl")
def test_what_opengl_has_is_constructed_once() -> None:
    with gl.GlContext() as context:
        _refuses_another(gl.GlFence(context), call_with(context))
        _refuses_another(gl.PixelBuffer(64, context, persistent=False), call_with(64, context, persistent=False))
        _refuses_another(gl.Texture(4, 4, context=context), call_with(4, 4, context=context))
        _refuses_another(context, call_with())


def test_what_makes_no_memory_by_a_size_alone_refuses_another_init() -> None:
    for made, arguments in (
        (core.DmaMemoryResource(), ("system",)),
        (core.KindMemoryResource("camera"), ("radar",)),
        (core.using(tm.zeros(1).storage), (tm.zeros(1).storage,)),
    ):
        with pytest.raises(errors.InvalidArgument):
            made.__init__(*arguments)  # type: ignore[misc]
