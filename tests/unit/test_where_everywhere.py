"""One way to say where: every entry point takes every spelling, lands in the right place, or says truly why not.

Adding an entry point is one line in `ENTRIES`.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tensormem as tm
from tensormem import drivers, errors, memories, mr, pytest_plugin
from tensormem.distributed.declaration import Declaration
from tensormem.drivers import resolve
from tensormem.interop import safetensors
from tensormem.interop import torch as interop_torch
from tensormem.memories import dma, pbo, shm
from tensormem.reports.selftest import SelftestReport
from tensormem.spaces import ComputeDevice, rank_compute_devices
from tensormem.streams import Event, Stream, default_stream
from tensormem.testing import SimulatedGpu, device_plugin, simulated_gpu
from tensormem.trace.workload import workload_of

torch = pytest.importorskip("torch")

VENDORS = ["cuda", "rocm"]
ALL = frozenset(("main", "pinned", "gpu", "managed"))
COMPUTING = frozenset(("main", "gpu"))


class JaxLike:
    """A device as JAX has it."""

    def __init__(self, platform: str, number: int) -> None:
        self.platform, self.id = platform, number


# --- What can be said, by what is meant -------------------------------------------------------------------------------

SPELLINGS: dict[str, dict[str, Callable[[str], Any]]] = {
    "main": {
        **{text: lambda _, text=text: text for text in ("main", "cpu", "host", "cpu:0", "host:0")},  # type: ignore[misc]
        "space": lambda _: tm.main,
        "device": lambda _: ComputeDevice("cpu"),
        "driver": lambda _: drivers.host(),
        "torch": lambda _: torch.device("cpu"),
        "jax": lambda _: JaxLike("cpu", 3),
        "where": lambda _: resolve("cpu"),
    },
    "gpu:1": {
        "gpu:1": lambda _: "gpu:1",
        "vendor:1": lambda vendor: f"{vendor}:1",
        "other word": lambda vendor: {"cuda": "cuda:1", "rocm": "hip:1"}[vendor],
        "space": lambda _: tm.gpu(1),
        "device": lambda vendor: ComputeDevice(vendor, 1),
        "driver": lambda vendor: drivers.get(f"{vendor}:1"),
        "torch": lambda _: torch.device("cuda", 1),  # which PyTorch for ROCm says as well
        "jax": lambda vendor: JaxLike(vendor, 1),
        "where": lambda _: resolve("gpu:1"),
    },
    "gpu:0": {
        "gpu": lambda _: "gpu",
        "vendor": lambda vendor: vendor,
        "torch": lambda _: torch.device("cuda"),
    },
    "pinned": {"text": lambda _: "pinned", "space": lambda _: tm.pinned, "where": lambda _: resolve("pinned")},
    "managed": {"text": lambda _: "managed", "space": lambda _: tm.managed, "where": lambda _: resolve("managed")},
}
SAID = [(meant, name) for meant, spellings in SPELLINGS.items() for name in spellings]


# --- Who is told: each gives where it landed, as text: main, pinned, managed, or the device of a driver ---------------


def by_driver(driver: Any, device: int | None = None) -> str:
    number = driver.device if device is None else device
    return "main" if driver.name == "host" else f"{driver.name}:{number}"


def by_storage(storage: Any) -> str:
    return by_driver(storage.driver) if storage.space.kind == "gpu" else str(storage.space)


def by_tensor(tensor: Any) -> str:
    with tensor:
        return by_storage(tensor.storage)


def by_manager(manager: Any) -> str:
    with manager:
        return by_driver(manager.driver, manager.device)


def by_resource(resource: Any) -> str:
    block = resource.allocate(4096)
    assert block.ptr
    resource.deallocate(block)
    return by_driver(resource.driver, resource.device_ordinal)


def over_pointer(said: Any) -> str:
    memory = (ctypes.c_uint8 * 64)()
    return by_tensor(tm.from_pointer(ctypes.addressof(memory), 64, owner=memory, space=said))


def over_descriptor(said: Any) -> str:
    fd = os.memfd_create("frame")
    try:
        os.ftruncate(fd, 4096)
        return by_tensor(tm.from_external_fd(fd, space=said))
    finally:
        os.close(fd)


def moved(said: Any) -> str:
    moved = tm.full((4, 4), 7, "int32").to(said)
    assert moved.to("main").wait().tolist() == [[7] * 4] * 4
    return by_storage(moved.storage)


def of_kind(make: Callable[[Any], Any], kind: str) -> Callable[[Any], str]:
    def call(said: Any) -> str:
        try:
            return by_storage(make(said))
        except errors.MemoryUnavailable as missing:
            if "main memory" in missing.reason:
                raise  # it is refused for where it was to be
            assert not memories.is_available(kind)
            return "main"

    return call


def loaded(said: Any) -> str:
    path = Path(os.environ["PYTEST_WHERE_FOLDER"]) / "weights.safetensors"
    safetensors.save({"w": tm.zeros(4)}, path)
    return by_storage(safetensors.load(path, said)["w"].storage)


def pages(said: Any) -> str:
    """All the calls of a manager that take a device."""
    home = resolve(said, COMPUTING, "pages are").driver
    with tm.VirtualMemoryManager(home) as vmm:
        size = vmm.granularity(said)[1]
        assert vmm.memory_info(said)["total_bytes"] > 0
        va, physical = vmm.reserve(size), vmm.alloc_physical(size, said)
        vmm.map(va, physical, 0, access="read", device=said)
        vmm.set_access(va, said, "read_write")
        assert vmm.get_access(va, said) == "read_write"
        landed = by_driver(vmm.driver, physical.device)
    return landed


def per_device(said: Any) -> str:
    made = mr.get_per_device_resource(said)
    mr.set_per_device_resource(said, made)
    assert mr.get_current_device_resource(said) is made is mr.get_current_device_resource(device=said)
    return by_driver(made.driver, made.device_ordinal)


def tenant(said: Any) -> str:
    with tm.TenantPool("16MiB", device=said) as pool:
        return by_driver(pool.register("chat", "8MiB").pool.driver)


def stream(said: Any) -> str:
    assert default_stream(said).device == Stream.default(said).device
    Event(said).close()
    with Stream(said) as made:
        assert made.device == made.driver.device
        return by_driver(made.driver)


def chosen(said: Any) -> str:
    first = tm.preferred_compute_devices(said)[0]
    assert rank_compute_devices(said)[0].device is first
    meant = resolve(said)
    # Memory that several devices reach is not one's own.
    return str(meant) if meant.kind in ("pinned", "managed") else {"cpu:0": "main"}.get(str(first), str(first))


def mark(said: Any) -> str:
    return str(pytest_plugin._limit("limit_memory", "1KiB", said).space)


def declared(said: Any) -> str:
    declaration = Declaration(device=said)
    assert Declaration.from_json(declaration.to_json()) == declaration
    return by_driver(drivers.get(declaration.device))


def torch_hook(said: Any) -> str:
    driver = drivers.gpu(said)
    interop_torch.register(mr.GpuMemoryResource(driver), said)
    interop_torch.unregister(said)
    return by_driver(driver)


def advised(said: Any) -> str:
    """Managed memory is moved to a device, or to the host."""
    meant = resolve(said)
    home = mr.ManagedMemoryResource(meant.driver if meant.kind == "gpu" else 0)
    block = home.allocate(4096)
    try:
        home.advise(block, "preferred_location", said)
        home.driver.prefetch(block.ptr, 4096, said)
        Stream.default(home.driver).synchronize()
    finally:
        home.deallocate(block)
    return "main" if meant.kind == "main" else by_driver(home.driver)


def examined(said: Any) -> str:
    device_plugin._chosen[:] = [SelftestReport.of(said).asked]
    return by_driver(device_plugin.driver_under_test())


def recorded(said: Any) -> str:
    path = Path(os.environ["PYTEST_WHERE_FOLDER"]) / "run.tmt"
    path.unlink(missing_ok=True)
    leaf = {"main": mr.HostMemoryResource, "pinned": mr.PinnedMemoryResource, "managed": mr.ManagedMemoryResource}
    with tm.trace(path):
        other = mr.HostMemoryResource() if resolve(said).kind != "main" else mr.GpuMemoryResource(0)
        for resource in (leaf.get(resolve(said).kind, mr.GpuMemoryResource)(*_device(said)), other):
            resource.deallocate(resource.allocate(1000))
    trace = tm.trace.open(path)
    assert len(trace.lifetimes()) == 2
    assert len(trace.lifetimes(space=said)) == 1 == len(workload_of(trace, said).lifetimes)
    meant = resolve(said)
    return by_driver(meant.driver) if meant.kind == "gpu" else str(meant)


def _device(said: Any) -> tuple[Any, ...]:
    return () if resolve(said).kind == "main" else (said,)


class Entry(NamedTuple):
    """A way to say where: what it does, which spaces it serves, and how it refuses the others."""

    call: Callable[[Any], str]
    serves: frozenset[str] = ALL
    refusal: type[Exception] = errors.UnsuitableSpace


MAIN, GPU = frozenset(("main",)), frozenset(("gpu",))
ENTRIES: dict[str, Entry] = {
    "empty": Entry(lambda said: by_tensor(tm.empty((4, 4), space=said))),
    "zeros": Entry(lambda said: by_tensor(tm.zeros((4, 4), space=said))),
    "full": Entry(lambda said: by_tensor(tm.full(4, 2, space=said))),
    "empty of nothing": Entry(lambda said: by_tensor(tm.empty((0, 4), space=said))),
    "empty for sharing": Entry(
        lambda said: by_tensor(tm.empty(4, space=said, use="share")), MAIN, errors.MemoryUnavailable
    ),
    "from_pointer": Entry(over_pointer),
    "from_external_fd": Entry(over_descriptor, GPU),
    "Tensor.to": Entry(moved),
    "memories.allocate mem": Entry(lambda said: by_storage(memories.allocate(64, "mem", said))),
    "memories.allocate shm": Entry(
        lambda said: by_storage(memories.allocate(64, "shm", said)), MAIN, errors.MemoryUnavailable
    ),
    "shm.allocate": Entry(lambda said: by_storage(shm.allocate(64, said)), MAIN, errors.MemoryUnavailable),
    "dma.allocate": Entry(of_kind(lambda said: dma.allocate(64, said), "dma"), MAIN, errors.MemoryUnavailable),
    "pbo.allocate": Entry(of_kind(lambda said: pbo.allocate(64, said), "pbo"), MAIN, errors.MemoryUnavailable),
    "image": Entry(lambda said: by_storage(tm.image(8, 8, "rgb", space=said).storage)),
    "safetensors.load": Entry(loaded),
    "VirtualMemoryManager": Entry(lambda said: by_manager(tm.VirtualMemoryManager(said)), COMPUTING),
    "VirtualMemoryManager calls": Entry(pages, COMPUTING),
    "VirtualMemoryPool": Entry(lambda said: by_manager(tm.VirtualMemoryPool("8MiB", device=said)), COMPUTING),
    "BlockCache": Entry(lambda said: by_manager(tm.BlockCache("8MiB", "64KiB", device=said)), COMPUTING),
    "TenantPool": Entry(tenant, COMPUTING),
    "ElasticMemoryResource": Entry(lambda said: by_resource(mr.ElasticMemoryResource(said)), COMPUTING),
    "GpuMemoryResource": Entry(lambda said: by_resource(mr.GpuMemoryResource(said)), GPU),
    "GpuAsyncMemoryResource": Entry(lambda said: by_resource(mr.GpuAsyncMemoryResource(said)), GPU),
    "ManagedMemoryResource": Entry(lambda said: by_resource(mr.ManagedMemoryResource(said)), GPU | {"managed"}),
    "PinnedMemoryResource": Entry(lambda said: by_resource(mr.PinnedMemoryResource(said)), ALL - {"managed"}),
    "per-device resource": Entry(per_device, COMPUTING),
    "Stream and Event": Entry(stream, COMPUTING),
    "preferred_compute_devices": Entry(chosen),
    "drivers.get": Entry(lambda said: by_driver(drivers.get(said)), COMPUTING),
    "drivers.gpu": Entry(lambda said: by_driver(drivers.gpu(said)), GPU),
    "ComputeDevice of where": Entry(
        lambda said: {"cpu:0": "main"}.get(str(resolve(said).compute_device), str(resolve(said).compute_device))
    ),
    "pytest marks": Entry(mark),
    "trace and workload": Entry(recorded),
    "selftest": Entry(examined, COMPUTING),
    "distributed declaration": Entry(declared, COMPUTING),
    "torch allocator": Entry(torch_hook, GPU),
    "managed advice": Entry(advised, COMPUTING),
}
# Whoever names the driver, and not the memory, finds that of pinned and managed memory at the first GPU.
DRIVER_OF_MEMORY = ("ManagedMemoryResource", "PinnedMemoryResource", "ComputeDevice of where")
# A space does not say whose GPU it is.
SPACE_ONLY = ("pytest marks",)


@pytest.fixture(params=VENDORS, scope="module")
def gpu(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedGpu]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PYTEST_WHERE_FOLDER", str(tmp_path_factory.mktemp("where")))
        patch.setattr(torch.version, "hip", "6.2" if request.param == "rocm" else None)
        with simulated_gpu(devices=2, memory="128MiB", vendor=request.param) as gpu:
            yield gpu


def expected(entry: str, meant: str, vendor: str) -> str:
    if meant in ("pinned", "managed") and entry in DRIVER_OF_MEMORY:
        return f"{vendor}:0"
    return meant if entry in SPACE_ONLY else meant.replace("gpu", vendor)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("meant", "name"), SAID)
def test_every_entry_point_takes_every_spelling_and_lands_there_or_says_why_not(
    gpu: SimulatedGpu, entry: str, meant: str, name: str
) -> None:
    said = SPELLINGS[meant][name](gpu.vendor)
    told = ENTRIES[entry]
    if meant.partition(":")[0] in told.serves:
        assert told.call(said) == expected(entry, meant, gpu.vendor)
        return
    with pytest.raises(told.refusal) as caught:
        told.call(said)
    assert meant.replace("gpu", gpu.vendor) in str(caught.value) or meant in str(caught.value)
    if told.refusal is errors.UnsuitableSpace:
        assert any(there in str(caught.value) for there in (f"gpu:1 ({gpu.vendor})", f"has {gpu.vendor}:0 and"))


# A space does not say whose GPU it is.
@pytest.mark.parametrize(
    "entry", [name for name, told in ENTRIES.items() if "gpu" in told.serves and name not in SPACE_ONLY]
)
def test_a_gpu_of_the_other_vendor_is_never_taken_instead(gpu: SimulatedGpu, entry: str) -> None:
    other = "rocm" if gpu.vendor == "cuda" else "cuda"
    wrong = (errors.DriverUnavailable, errors.MemoryUnavailable, errors.NoCompatibleComputeDevice)
    with pytest.raises(wrong) as caught:
        ENTRIES[entry].call(f"{other}:1")
    assert isinstance(caught.value, errors.NoCompatibleComputeDevice) or f"gpu:1 ({gpu.vendor})" in str(caught.value)


MEANINGLESS = [None, True, -1, 2**70, "gpu:", "gpu:01", "cuda:x", "tpu", b"gpu:0", object(), 1.0, ["main"]]
# Where nothing has to be said, None is the default.
MAY_BE_NONE = {
    "empty",
    "zeros",
    "full",
    "empty of nothing",
    "empty for sharing",
    "per-device resource",
    "PinnedMemoryResource",
    "trace and workload",
}


@pytest.mark.parametrize(
    ("entry", "bad"),
    [(entry, bad) for entry in ENTRIES for bad in MEANINGLESS if bad is not None or entry not in MAY_BE_NONE],
)
def test_what_means_nothing_is_refused_by_everybody(gpu: SimulatedGpu, entry: str, bad: object) -> None:
    with pytest.raises((errors.InvalidArgument, errors.DriverUnavailable)):
        ENTRIES[entry].call(bad)


def test_a_pool_on_a_driver_is_on_that_drivers_device(gpu: SimulatedGpu) -> None:
    for make in (tm.VirtualMemoryPool, lambda size, device: tm.BlockCache(size, "64KiB", device=device)):
        with make("8MiB", device=drivers.get(f"{gpu.vendor}:1")) as pool:
            assert pool.device == 1 and pool.where == f"{gpu.vendor}:1"


def test_a_manager_of_one_vendor_takes_gpu_1_as_its_own_and_refuses_what_is_not(gpu: SimulatedGpu) -> None:
    with tm.VirtualMemoryManager("gpu:0") as vmm:
        assert vmm.alloc_physical("2MiB", tm.gpu(1)).device == 1 == vmm.alloc_physical("2MiB", 1).device
        other = "rocm:0" if gpu.vendor == "cuda" else "cuda:0"
        for foreign in ("main", "gpu:2", 2, other):
            with pytest.raises(errors.UnsuitableSpace, match=f"{gpu.vendor}:0 and {gpu.vendor}:1"):
                vmm.alloc_physical("2MiB", foreign)
