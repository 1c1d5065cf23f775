"""Tensors in a real Dask cluster: worker to worker, to the client, by descriptor, and with workers killed."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import tensormem as tm
from support.clusters import TESTS, dask_cluster, eventually, memory_descriptors
from tensormem import errors

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with dask_cluster(workers=3) as connected:
        yield connected


@pytest.fixture(scope="module")
def handing_over(client: Any) -> Any:
    """The same client, when its workers hand memory over."""
    from tensormem.distributed.dask import HandOverPlugin

    client.register_plugin(HandOverPlugin())
    return client


@pytest.fixture(autouse=True)
def _nothing_stays(client: Any) -> Iterator[None]:
    before = sum(map(len, client.run(held).values()))
    yield
    gc.collect()
    eventually(lambda: sum(map(len, client.run(held).values())) <= before, "a worker holds memory that nobody needs")


def held() -> list[str]:
    gc.collect()
    return memory_descriptors(os.getpid())


def make(value: int, nbytes: int = 3 * MEBIBYTE, **options: Any) -> tm.Tensor:
    return tm.full((nbytes // 4,), value, "int32", **options)


def seen(tensor: tm.Tensor) -> dict[str, Any]:
    from tensormem.distributed.dask import handover

    return {
        "value": tensor[-1].item(),
        "memory": str(tensor.memory),
        "space": str(tensor.space),
        "readonly": tensor.readonly,
        "shape": tensor.shape,
        "strides": tensor.strides,
        "collected": handover.counts.collected,
    }


def workers(client: Any) -> list[str]:
    return sorted(client.scheduler_info()["workers"])


def on(client: Any, worker: int, function: Any, *arguments: Any, **options: Any) -> Any:
    return client.submit(function, *arguments, workers=[workers(client)[worker]], pure=False, **options)


def test_workers_know_tensors_without_anybody_importing_us(client: Any) -> None:
    def families() -> tuple[bool, bool]:
        from dask.sizeof import sizeof
        from distributed.protocol.serialize import families

        import tensormem as tm

        return "tensormem" in families, sizeof(tm.zeros(1000)) >= 4000

    assert set(client.run(families).values()) == {(True, True)}


def test_a_tensor_goes_from_worker_to_worker_and_arrives_writable(client: Any) -> None:
    made = on(client, 0, make, 7)
    assert on(client, 1, seen, made).result() == {
        "value": 7,
        "memory": "mem",
        "space": "main",
        "readonly": False,
        "shape": (786432,),
        "strides": (1,),
        "collected": 0,
    }


def test_layouts_and_what_may_be_written_are_kept(client: Any) -> None:
    def columns() -> list[tm.Tensor]:
        tensor = tm.full((512, 512), 3, "int32")
        return [tensor.T, tensor[::2, 1:], tensor.as_readonly(), tm.zeros((0, 4))]

    def facts(tensors: list[tm.Tensor]) -> list[tuple[object, ...]]:
        return [(each.shape, each.strides, each.readonly) for each in tensors]

    assert on(client, 1, facts, on(client, 0, columns)).result() == [
        ((512, 512), (1, 512), False),
        ((256, 511), (511, 1), False),
        ((512, 512), (512, 1), True),
        ((0, 4), (4, 1), False),
    ]


def test_a_tensor_larger_than_a_frame_comes_whole_to_the_client(client: Any) -> None:
    arrived = on(client, 0, make, 9, 130 * MEBIBYTE).result()  # Dask splits at 64 MiB
    assert (arrived.readonly, arrived[0].item(), arrived[-1].item()) == (False, 9, 9)


def test_a_tensor_of_a_gpu_arrives_on_the_gpu_of_the_other_worker(client: Any) -> None:
    def make_there() -> tm.Tensor:
        return make(5).to("gpu:0")

    def see_there(tensor: tm.Tensor) -> tuple[str, int]:
        return str(tensor.space), tensor.to("main")[0].item()

    with dask_cluster(workers=2, env={"TENSORMEM_SIMGPU": "devices=1,memory=64MiB"}) as own:
        # A second cluster on this host, beside the one of the other tests.
        made = on(own, 0, make_there)
        assert on(own, 1, see_there, made).result() == ("gpu:0", 5)
        # The client has no GPU, and says so.
        with pytest.raises(errors.MemoryUnavailable, match="arrived from gpu:0 of host"):
            made.result()


def test_the_family_can_be_asked_for_alone(client: Any) -> None:
    from distributed.protocol import deserialize, serialize

    header, frames = serialize(make(4), serializers=["tensormem"])
    assert header["serializer"] == "tensormem"
    assert deserialize(header, [bytearray(frame) for frame in frames])[0].item() == 4
    assert serialize({"no": "tensor"}, serializers=["tensormem"], iterate_collection=False)[0]["serializer"] == "error"


def test_serializing_copies_nothing(client: Any) -> None:
    import numpy as np
    from distributed.protocol import serialize

    tensor = make(1, 64 * MEBIBYTE)
    _, frames = serialize(tensor)
    assert [np.frombuffer(frame, "uint8").ctypes.data for frame in frames] == [tensor.ptr]


def test_memory_at_both_ends_never_holds_a_second_copy(client: Any) -> None:
    size = 192 * MEBIBYTE

    def grown(tensor: tm.Tensor, before: int) -> int:
        return peak() - before

    from distributed import wait

    made = on(client, 0, make, 2, size)
    wait(made)
    first, second = workers(client)[:2]
    for worker in (first, second):
        client.run(reset_peak, workers=[worker])
    before = client.run(peak, workers=[first, second])
    received = on(client, 1, grown, made, before[second]).result()
    sent = client.run(peak, workers=[first])[first] - before[first]
    assert size * 0.9 < received < size * 1.5
    assert sent < size * 0.5


def reset_peak() -> None:
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak() -> int:
    """The most memory this process has had since `reset_peak`."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def test_shared_memory_goes_by_descriptor_to_a_worker_of_the_same_node(handing_over: Any) -> None:
    def write(tensor: tm.Tensor) -> None:
        tensor.fill_(8)

    made = on(handing_over, 0, make, 7, memory="shm")
    facts = on(handing_over, 1, seen, made).result()
    assert (facts["memory"], facts["value"], facts["readonly"], facts["collected"] > 0) == ("shm", 7, False, True)
    on(handing_over, 2, write, made).result()
    assert on(handing_over, 0, seen, made).result()["value"] == 8  # it is the same memory


def test_other_memory_and_the_client_still_get_bytes(handing_over: Any) -> None:
    before = on(handing_over, 1, seen, make(0, 64)).result()["collected"]
    facts = on(handing_over, 1, seen, on(handing_over, 0, make, 7)).result()
    assert (facts["memory"], facts["collected"]) == ("mem", before)
    arrived = on(handing_over, 0, make, 6, memory="shm").result()
    assert (str(arrived.memory), arrived[0].item()) == ("mem", 6)


@pytest.fixture
def on_another_node(handing_over: Any, tmp_path: Any) -> Iterator[str]:
    """The address of one more worker, whose host is another one as Dask counts hosts: by address."""
    address = handing_over.scheduler_info()["address"]
    options = ["--host", "127.0.0.2", "--nthreads", "1", "--no-dashboard", "--no-nanny", "--local-directory", tmp_path]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, *options]
    environment = {**os.environ, "PYTHONPATH": TESTS}  # it unpickles functions of this module
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: len(workers(handing_over)) == 4, "it does not come")
        yield next(each for each in workers(handing_over) if each.startswith("tcp://127.0.0.2"))
        process.terminate()
    eventually(lambda: len(workers(handing_over)) == 3, "it does not go")


def test_a_worker_of_another_node_gets_bytes(handing_over: Any, on_another_node: str) -> None:
    made = on(handing_over, 0, make, 7, memory="shm")
    used = handing_over.submit(seen, made, workers=[on_another_node], pure=False)
    facts = used.result()
    assert (facts["memory"], facts["value"], facts["collected"], facts["readonly"]) == ("mem", 7, 0, False)
    there = handing_over.submit(make, 8, memory="shm", workers=[on_another_node], pure=False)
    assert on(handing_over, 1, seen, there).result()["memory"] == "mem"


def test_memory_of_a_result_is_gone_when_nobody_refers_to_it(handing_over: Any) -> None:
    before = sum(map(len, handing_over.run(held).values()))
    made = [on(handing_over, 0, make, number, memory="shm") for number in range(4)]
    used = [on(handing_over, 1, lambda tensor: tensor, each) for each in made]
    assert [each.result()[0].item() for each in used] == [0, 1, 2, 3]
    assert sum(map(len, handing_over.run(held).values())) == before + 8
    # What `_nothing_stays` then sees.


def test_a_worker_killed_after_it_sent_leaves_the_receiver_whole(handing_over: Any) -> None:
    from distributed import wait

    made = on(handing_over, 0, make, 3, memory="shm")
    used = on(handing_over, 1, lambda tensor: tensor, made)
    wait(used)
    gone = workers(handing_over)[0]
    pid = handing_over.run(os.getpid, workers=[gone])[gone]
    os.kill(pid, signal.SIGKILL)
    assert used.result()[0].item() == 3
    eventually(lambda: gone not in workers(handing_over) and len(workers(handing_over)) == 3, "no new worker")


def test_a_receiver_killed_in_its_task_is_replaced_and_gets_the_memory_again(handing_over: Any, tmp_path: Any) -> None:
    first_time = tmp_path / "first"

    def die_once(tensor: tm.Tensor, mark: str) -> int:
        if not os.path.exists(mark):
            with open(mark, "w"):
                os.kill(os.getpid(), signal.SIGKILL)
        value: int = tensor[0].item()
        return value

    made = on(handing_over, 0, make, 4, memory="shm")
    done = on(handing_over, 1, die_once, made, str(first_time), allow_other_workers=True)
    assert done.result() == 4
    eventually(lambda: len(workers(handing_over)) == 3, "no new worker")


class Bomb:
    """Kills the process that sends it, or the one that receives it, but only once."""

    def __init__(self, mark: str, where: str) -> None:
        self.mark, self.where = mark, where

    def go_off(self, where: str) -> None:
        if where == self.where and not os.path.exists(self.mark):
            with open(self.mark, "w"):
                os.kill(os.getpid(), signal.SIGKILL)

    def __reduce__(self) -> Any:
        self.go_off("sending")
        return _arrived, (self.mark, self.where)


def _arrived(mark: str, where: str) -> Bomb:
    bomb = Bomb(mark, where)
    bomb.go_off("receiving")
    return bomb


@pytest.mark.parametrize("where", ["sending", "receiving"])
def test_a_worker_killed_in_the_middle_of_a_hand_over_costs_nothing_but_time(
    handing_over: Any, tmp_path: Any, where: str
) -> None:
    mark = str(tmp_path / "mark")

    def armed() -> list[Any]:
        # The tensor is brought to the receiver first; then the bomb goes off.
        return [make(6, memory="shm"), Bomb(mark, where)]

    def value(message: list[Any]) -> tuple[int, str]:
        return message[0][0].item(), str(message[0].memory)

    made = on(handing_over, 0, armed, allow_other_workers=True)
    used = on(handing_over, 1, value, made, allow_other_workers=True)
    assert used.result(timeout=90)[0] == 6
    assert os.path.exists(mark)
    eventually(lambda: len(workers(handing_over)) == 3, "no new worker")


def test_what_comes_back_from_a_disk_can_be_written() -> None:
    from distributed.protocol import deserialize_bytes, serialize_bytes

    arrived = deserialize_bytes(serialize_bytes(make(5)))
    assert (arrived.readonly, arrived[0].item()) == (False, 5)
    assert deserialize_bytes(serialize_bytes(make(5).as_readonly())).readonly


def test_what_is_gone_before_it_was_collected_is_a_broken_connection_for_dask() -> None:
    from tensormem.distributed.dask import serializers

    with pytest.raises(errors.WorkerDied, match=r"worker 4711 of node a") as caught:
        serializers.deserialize({"brought": "0" * 32, "worker": "4711", "node": "a"}, [])
    assert isinstance(caught.value, OSError)  # which is what Dask looks for, to get the data elsewhere
    with pytest.raises(errors.MalformedMessage, match="later"):
        serializers.deserialize({"later": 1}, [])
