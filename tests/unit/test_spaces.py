"""spaces: where bytes live, what computes, their numbers in DLPack, and which device suits which space."""

import copy
import doctest
import importlib
import itertools
import pickle
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensormem import spaces
from tensormem.errors import InvalidArgument, InvalidSpace, NoCompatibleComputeDevice, UnknownDeviceType
from tensormem.spaces import (
    ComputeDevice,
    DeviceKind,
    DeviceType,
    GpuVendor,
    LogicalMemorySpace,
    OpKind,
    SpaceKind,
    compute_devices,
    gpu,
    main,
    managed,
    pinned,
    preferred_compute_devices,
    rank_compute_devices,
    register_compute_device,
    unregister_compute_device,
)

IDS = st.integers(0, 2**31 - 1)
SPACES = st.sampled_from([main, pinned, managed]) | IDS.map(gpu)
DEVICES = st.builds(ComputeDevice, st.sampled_from([*DeviceKind]), IDS)
PLACES = SPACES | DEVICES
BAD_IDS = [-1, 2**31, True, False, 1.0, "1", None, [1], np.float64(1)]

CPU, CUDA0, CUDA1, ROCM0 = map(ComputeDevice.parse, ["cpu:0", "cuda:0", "cuda:1", "rocm:0"])


@pytest.fixture
def machine() -> Iterator[None]:
    """Afterwards, the machine has the devices it had before."""
    before = compute_devices()
    yield
    for device in compute_devices():
        if device not in before:
            unregister_compute_device(device)


# --- Values ----------------------------------------------------------------------------------------------------------


@given(PLACES)
def test_text_goes_both_ways(place: LogicalMemorySpace | ComputeDevice) -> None:
    assert type(place).parse(str(place)) is place


def test_a_space_or_device_is_its_own_parse() -> None:
    assert LogicalMemorySpace.parse(gpu(1)) is gpu(1)
    assert ComputeDevice.parse(CUDA1) is CUDA1


@given(PLACES)
def test_one_object_per_value_survives_pickle_copy_and_repr(place: LogicalMemorySpace | ComputeDevice) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(place, protocol)) is place
    assert copy.copy(place) is place
    assert copy.deepcopy([place])[0] is place
    assert eval(repr(place), {"tm": spaces}) is place
    assert {place: 1}[type(place).parse(str(place))] == 1


@given(IDS)
def test_cuda_and_rocm_are_other_ways_to_write_gpu(device_id: int) -> None:
    assert LogicalMemorySpace.parse(f"cuda:{device_id}") is gpu(device_id)
    assert LogicalMemorySpace.parse(f"rocm:{device_id}") is gpu(device_id)
    assert LogicalMemorySpace("gpu", device_id) is gpu(device_id)


def test_spaces_say_kind_and_id() -> None:
    assert (main.kind, main.device_id, gpu(3).kind, gpu(3).device_id) == ("main", 0, "gpu", 3)
    assert main.kind is SpaceKind.MAIN
    assert [repr(space) for space in (main, pinned, managed, gpu(3))] == [
        "tm.main",
        "tm.pinned",
        "tm.managed",
        "tm.gpu(3)",
    ]
    assert (CUDA1.kind, CUDA1.device_id, CUDA1.is_gpu, CPU.is_gpu) == ("cuda", 1, True, False)
    assert repr(CUDA1) == "tm.ComputeDevice('cuda', 1)"


def test_numpy_integers_are_ids() -> None:
    assert gpu(np.int64(2)) is gpu(2)
    assert type(gpu(np.int32(123)).device_id) is int


def test_spaces_and_devices_sort_by_kind_then_id() -> None:
    assert sorted([managed, gpu(10), gpu(2), pinned, main]) == [main, pinned, gpu(2), gpu(10), managed]
    assert sorted([ROCM0, CUDA1, CPU, CUDA0]) == [CPU, CUDA0, CUDA1, ROCM0]


@given(st.lists(SPACES, min_size=2, max_size=2))
def test_order_is_total(pair: list[LogicalMemorySpace]) -> None:
    left, right = pair
    assert (left < right) + (left == right) + (left > right) == 1
    assert (left <= right) == (left < right or left is right) == (not left > right)


def test_spaces_and_devices_do_not_compare() -> None:
    with pytest.raises(TypeError):
        sorted([main, CPU])
    others: list[object] = [CUDA0, "gpu:1", 0, None, "nowhere"]
    assert gpu(0) not in others


@pytest.mark.parametrize("place", [main, gpu(1), CUDA1])
@pytest.mark.parametrize("attribute", ["kind", "device_id", "new"])
def test_spaces_and_devices_cannot_be_changed(place: LogicalMemorySpace | ComputeDevice, attribute: str) -> None:
    before = str(place)
    with pytest.raises(AttributeError, match=attribute):
        setattr(place, attribute, 7)
    with pytest.raises(AttributeError, match=attribute):
        delattr(place, attribute)
    assert str(place) == before


def test_threads_that_race_for_a_new_space_get_one_object() -> None:
    barrier, made = threading.Barrier(4), []

    def race() -> None:
        for device_id in range(5_000_000, 5_000_200):
            barrier.wait()
            made.append((device_id, id(gpu(device_id))))

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 800
    assert len(set(made)) == 200


@pytest.mark.parametrize("bad", BAD_IDS)
def test_an_id_that_is_none_is_refused(bad: int) -> None:
    for make in (
        gpu,
        lambda device_id: ComputeDevice("cuda", device_id),
        lambda i: LogicalMemorySpace.from_dlpack(2, i),
    ):
        with pytest.raises(InvalidSpace, match="ids are whole numbers from 0 to 2147483647") as caught:
            make(bad)
        assert repr(bad) in str(caught.value.value)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "Main",
        " main",
        "main:0",
        "main:1",
        "cpu:1",
        "host:1",
        "pinned:0",
        "managed:0",
        "gpu:",
        "gpu:-1",
        "gpu:+1",
        "gpu: 1",
        "gpu:01",
        "gpu:1.0",
        "gpu:1:2",
        "gpu:x",
        "gpu:\u0661",
        "gpu:\u00b2",
        "gpu:2147483648",
        "gpu:99999999999",
        "gpu:" + "9" * 5000,
        ":1",
        "tpu:0",
        None,
        0,
        b"main",
        ["main"],
    ],
)
def test_what_names_no_space_is_refused(bad: str) -> None:
    with pytest.raises(InvalidSpace):
        LogicalMemorySpace.parse(bad)


@pytest.mark.parametrize(
    "bad",
    ["", "CPU:0", "gpu:0", "pinned", "managed", gpu(0), pinned, "cuda:-1", "cuda:00", "host:1", None, 0, ["cpu:0"]],
)
def test_what_names_no_device_is_refused(bad: str) -> None:
    with pytest.raises(InvalidSpace):
        ComputeDevice.parse(bad)


@pytest.mark.parametrize("bad", ["tpu", "", "GPU", None, 1, ["gpu"]])
def test_a_kind_that_does_not_exist_is_refused(bad: str) -> None:
    for make in (LogicalMemorySpace, ComputeDevice):
        with pytest.raises(InvalidSpace) as caught:
            make(bad)
        assert caught.value.value is bad


@pytest.mark.parametrize("kind", ["main", "pinned", "managed"])
def test_only_gpu_spaces_are_numbered(kind: str) -> None:
    with pytest.raises(InvalidSpace, match="only gpu is numbered"):
        LogicalMemorySpace(kind, 1)
    with pytest.raises(InvalidSpace, match="ids are whole numbers"):
        LogicalMemorySpace(kind, -1)


# --- DLPack ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "vendor", "numbers"),
    [
        (main, None, (1, 0)),
        (main, "cuda", (1, 0)),
        (pinned, None, (1, 0)),
        (pinned, "cuda", (3, 0)),
        (pinned, GpuVendor.ROCM, (11, 0)),
        (gpu(1), "cuda", (2, 1)),
        (gpu(1), GpuVendor.ROCM, (10, 1)),
        (managed, None, (13, 0)),
        (managed, "rocm", (13, 0)),
    ],
)
def test_spaces_have_the_numbers_of_the_specification(
    space: LogicalMemorySpace, vendor: str | None, numbers: tuple[int, int]
) -> None:
    assert space.to_dlpack(vendor) == numbers


@given(SPACES, st.sampled_from(["cuda", "rocm"]))
def test_dlpack_goes_both_ways(space: LogicalMemorySpace, vendor: str) -> None:
    assert LogicalMemorySpace.from_dlpack(*space.to_dlpack(vendor)) is space


def test_gpu_memory_of_nobody_has_no_dlpack_device() -> None:
    with pytest.raises(InvalidArgument, match=r"gpu:1 .* say 'cuda' or 'rocm'"):
        gpu(1).to_dlpack()


@pytest.mark.parametrize("space", [main, pinned, managed, gpu(0)])
def test_a_vendor_that_does_not_exist_is_refused(space: LogicalMemorySpace) -> None:
    with pytest.raises(InvalidArgument, match="'nvidia'"):
        space.to_dlpack("nvidia")


def test_ids_of_spaces_that_are_not_numbered_are_not_kept() -> None:
    # CuPy gives managed memory the number of its GPU.
    assert LogicalMemorySpace.from_dlpack(13, 2) is managed
    assert LogicalMemorySpace.from_dlpack(1, 5) is main


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_device_type_is_a_space_or_is_named_in_the_error(device_type: int) -> None:
    try:
        LogicalMemorySpace.from_dlpack(device_type, 0)
    except UnknownDeviceType as error:
        named = error
    else:
        assert device_type in (1, 2, 3, 10, 11, 13)
        return
    assert str(device_type) in str(named)
    assert named.name == (DeviceType(device_type).name if device_type in tuple(DeviceType) else "")


@pytest.mark.parametrize(
    ("device_type", "name"), [(4, "OPENCL"), (8, "METAL"), (14, "ONEAPI"), (17, "MAIA"), (18, "TRN")]
)
def test_a_device_type_that_only_dlpack_knows_is_named(device_type: int, name: str) -> None:
    with pytest.raises(BufferError, match=f"{device_type} \\({name}\\)"):
        LogicalMemorySpace.from_dlpack(device_type, 0)


@pytest.mark.parametrize("bad", [0, 5, 6, 19, -1, True, "cuda", None, 1.5])
def test_a_device_type_that_nobody_knows_is_refused(bad: int) -> None:
    with pytest.raises(UnknownDeviceType) as caught:
        LogicalMemorySpace.from_dlpack(bad, 0)
    assert caught.value.device_type is bad


def test_device_types_are_those_of_the_specification() -> None:
    assert [number.value for number in DeviceType] == [1, 2, 3, 4, *range(7, 19)]


# --- The devices of this machine -------------------------------------------------------------------------------------


def test_a_machine_without_gpus_computes_on_its_cpu() -> None:
    assert compute_devices() == [CPU]
    for space, op in itertools.product([main, pinned, managed], [None, *OpKind]):
        assert preferred_compute_devices(space, op) == [CPU]


@pytest.mark.parametrize("op", [None, "contract"])
def test_gpu_memory_without_its_gpu_has_no_device(op: str | None) -> None:
    with pytest.raises(NoCompatibleComputeDevice, match="gpu:0") as caught:
        preferred_compute_devices("gpu:0", op)
    assert (caught.value.space, caught.value.op) == (gpu(0), op)


@pytest.mark.usefixtures("machine")
def test_gpu_memory_is_worked_on_by_its_own_gpu_only() -> None:
    register_compute_device(CUDA1)
    assert preferred_compute_devices(gpu(1), OpKind.COPY) == [CUDA1]
    with pytest.raises(NoCompatibleComputeDevice):
        preferred_compute_devices(gpu(0))


@pytest.mark.usefixtures("machine")
def test_main_memory_stays_with_the_cpu_when_gpus_come() -> None:
    register_compute_device("cuda:0")
    assert preferred_compute_devices(main, "contract") == [CPU]


GPU_FIRST = {
    "pinned": {None, "contract", "batched_gemm", "reduce"},
    "managed": {None, "contract", "batched_gemm", "reduce", "elementwise_mul"},
}


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("op", [None, *OpKind])
@pytest.mark.parametrize("space", ["pinned", "managed"])
def test_in_shared_memory_the_operation_decides_between_gpu_and_cpu(space: str, op: str | None) -> None:
    for device in (CUDA1, ROCM0, CUDA0):
        register_compute_device(device)
    gpus = [CUDA0, ROCM0, CUDA1]
    expected = [*gpus, CPU] if op in GPU_FIRST[space] else [CPU, *gpus]
    assert preferred_compute_devices(space, op) == expected


@pytest.mark.usefixtures("machine")
def test_every_choice_has_a_reason_and_the_table_of_the_docstring_is_true() -> None:
    register_compute_device(CUDA0)
    rows = [
        line.strip("| ").split("|")
        for line in (preferred_compute_devices.__doc__ or "").splitlines()
        if "first |" in line
    ]
    drawn = {
        (None if op == "none given" else op, space): first.strip().startswith("GPU")
        for ops, *firsts in rows
        for op in ops.strip().split(", ")
        for space, first in zip(["pinned", "managed"], firsts, strict=True)
    }
    assert drawn.keys() == set(itertools.product([None, *OpKind], ["pinned", "managed"]))
    for (op, space), gpu_first in drawn.items():
        choices = rank_compute_devices(space, op)
        assert choices[0].device.is_gpu is gpu_first
        assert all(choice.reason for choice in choices)
        assert choices[0].reason in choices[1].reason


def test_the_reason_says_when_the_better_kind_is_missing() -> None:
    assert rank_compute_devices(pinned, "contract")[0].reason == "no GPU of this machine reaches it"
    assert "CPU's work" in rank_compute_devices(pinned, "copy")[0].reason


@pytest.mark.usefixtures("machine")
def test_peers_and_coherent_cpus_come_after_the_gpu_itself() -> None:
    register_compute_device("cpu:1", reaches=lambda space: True)
    register_compute_device(CUDA0, reaches=[gpu(0), gpu(1), "main"])
    register_compute_device(CUDA1)
    assert preferred_compute_devices(gpu(1)) == [CUDA1, CUDA0, ComputeDevice("cpu", 1)]
    assert preferred_compute_devices(main) == [CPU, ComputeDevice("cpu", 1), CUDA0]
    reasons = [choice.reason for choice in rank_compute_devices(gpu(1))]
    assert reasons == ["gpu:1 is its own memory", "it reaches gpu:1 as a peer", "the CPU reaches gpu:1 across the bus"]


@pytest.mark.usefixtures("machine")
def test_a_device_that_reaches_nothing_is_never_chosen() -> None:
    register_compute_device(CUDA0, reaches=[])
    assert CUDA0 in compute_devices()
    assert preferred_compute_devices(pinned, "contract") == [CPU]


@pytest.mark.usefixtures("machine")
def test_a_function_may_change_its_mind() -> None:
    reached: set[LogicalMemorySpace] = set()
    register_compute_device(CUDA0, reaches=reached.__contains__)
    with pytest.raises(NoCompatibleComputeDevice):
        preferred_compute_devices(gpu(0))
    reached.add(gpu(0))
    assert preferred_compute_devices(gpu(0)) == [CUDA0]


@pytest.mark.usefixtures("machine")
def test_an_unregistered_device_is_gone_and_can_come_back() -> None:
    for _ in range(2):
        register_compute_device(CUDA0)
        assert preferred_compute_devices(gpu(0)) == [CUDA0]
        unregister_compute_device("cuda:0")
        with pytest.raises(NoCompatibleComputeDevice):
            preferred_compute_devices(gpu(0))


@pytest.mark.usefixtures("machine")
def test_a_device_is_registered_once() -> None:
    def nothing(space: LogicalMemorySpace) -> bool:
        return False

    register_compute_device(CUDA0, reaches=nothing)
    for again in (nothing, None, [gpu(0)]):
        with pytest.raises(InvalidArgument, match="cuda:0 is already registered"):
            register_compute_device(CUDA0, reaches=again)
    with pytest.raises(NoCompatibleComputeDevice):
        preferred_compute_devices(gpu(0))


def test_a_device_that_is_not_there_cannot_be_unregistered_nor_can_the_cpu() -> None:
    with pytest.raises(InvalidArgument, match="cuda:7 is not registered"):
        unregister_compute_device("cuda:7")
    with pytest.raises(InvalidArgument, match="cpu:0 is always there"):
        unregister_compute_device("cpu:0")
    assert compute_devices() == [CPU]


@pytest.mark.parametrize("bad", ["gpu:0", ["tpu:0"], [0], [None]])
def test_a_registration_with_bad_spaces_changes_nothing(bad: list[str]) -> None:
    with pytest.raises(InvalidSpace):
        register_compute_device(CUDA0, reaches=bad)
    assert compute_devices() == [CPU]


def test_a_registration_of_no_device_is_refused() -> None:
    with pytest.raises(InvalidSpace):
        register_compute_device("tpu:0")


@pytest.mark.parametrize("bad", ["gemm", "", "Copy", 7, ["copy"]])
def test_an_operation_that_does_not_exist_is_refused_with_those_that_do(bad: str) -> None:
    with pytest.raises(InvalidArgument, match="contract, batched_gemm, reduce, trace, permute, elementwise_mul, copy"):
        preferred_compute_devices(main, bad)


@pytest.mark.usefixtures("machine")
def test_threads_may_register_and_ask_at_once() -> None:
    stop, asked = threading.Event(), []

    def churn(device: str) -> None:
        for _ in range(300):
            try:
                register_compute_device(device)
            except InvalidArgument:
                continue  # the other thread with this device was faster
            unregister_compute_device(device)

    def ask() -> None:
        while not stop.is_set():
            asked.append(CPU in preferred_compute_devices(pinned, "contract"))

    asking = threading.Thread(target=ask)
    churning = [threading.Thread(target=churn, args=(f"cuda:{place % 2}",)) for place in range(4)]
    for thread in (asking, *churning):
        thread.start()
    for thread in churning:
        thread.join()
    stop.set()
    asking.join()
    assert all(asked)
    assert compute_devices() == [CPU]


def test_examples_in_the_docstrings_run() -> None:
    modules = [
        importlib.import_module(f"{spaces.__name__}.{name}")
        for name in ("kinds", "device", "space", "registry", "choice")
    ]
    ran = [doctest.testmod(module) for module in modules]
    assert all(result.attempted > 0 for result in ran)
    assert sum(result.failed for result in ran) == 0
