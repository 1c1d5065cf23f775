"""Tensors in a real Ray cluster of two nodes: through the object store, by descriptor, and with actors killed."""

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from support.clusters import TESTS, eventually, ray_cluster  # before ray, which it sets up

import ray  # isort: skip

import tensormem as tm
from support.python_processes import run_python
from support.stages import FIRST, SECOND, get, start
from tensormem import errors
from tensormem.distributed.ray import share

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(store_bytes=96 << 20) as started:
        yield started


@pytest.fixture(scope="module")
def near(cluster: Any) -> Any:
    return start(FIRST)


@pytest.fixture(scope="module")
def beside(cluster: Any) -> Any:
    return start(FIRST)


@pytest.fixture(scope="module")
def far(cluster: Any) -> Any:
    return start(SECOND)


@pytest.fixture(autouse=True)
def _nothing_stays(near: Any, beside: Any) -> Iterator[None]:
    before = get([near.held.remote(), beside.held.remote()])
    yield
    gc.collect()
    eventually(lambda: bool(get([near.held.remote(), beside.held.remote()]) == before), "memory is left in an actor")


def test_what_was_put_is_got_without_a_copy_and_may_only_be_read(cluster: Any) -> None:
    tensor = tm.from_numpy(np.arange(MEBIBYTE, dtype="int32").reshape(1024, 1024))
    reference = ray.put(tensor)
    first, second = get(reference), get(reference)
    assert first.ptr == second.ptr != tensor.ptr
    assert (first.readonly, first.shape, first.strides) == (True, (1024, 1024), (1024, 1))
    assert np.array_equal(np.asarray(first), np.asarray(tensor))
    writable = first.clone()
    assert not writable.readonly and writable.tolist()[3][:2] == [3072, 3073]


def test_layouts_arrive_as_they_were_or_without_gaps(cluster: Any) -> None:
    tensor = tm.full((300, 400), 5, "float32")
    turned, cut = get(ray.put([tensor.T, tensor[::3, ::2]]))
    assert (turned.strides, cut.strides, cut[0, 0].item()) == ((1, 400), (200, 1), 5.0)


def test_tensors_go_between_nodes_as_ray_carries_them(near: Any, far: Any) -> None:
    assert get(far.look.remote(near.make.remote(7, memory="shm"))) == {
        "value": 7,
        "memory": "mem",
        "readonly": True,
        "descriptor": 0,
        "object_store": 0,
    }


def test_a_tensor_of_a_gpu_that_is_not_here_is_an_error_where_it_arrives(cluster: Any) -> None:
    def make() -> tm.Tensor:
        return tm.full(1000, 3, "int32").to("gpu:0")

    def look(tensor: tm.Tensor) -> tuple[str, int]:
        return str(tensor.space), tensor.to("main")[0].item()

    with_gpu = ray.remote(num_cpus=0, runtime_env={"env_vars": {"TENSORMEM_SIMGPU": "devices=1,memory=64MiB"}})
    made = with_gpu(make).remote()
    assert get(with_gpu(look).remote(made)) == ("gpu:0", 3)
    with pytest.raises(Exception, match="arrived from gpu:0 of host"):
        get(made)


@pytest.mark.filterwarnings("ignore:RDT ObjectRef")  # Ray warns that it is the same memory, and that is the point
def test_shared_memory_goes_by_descriptor_inside_a_node(near: Any, beside: Any) -> None:
    before = get(beside.look.remote(tm.zeros(1, "int32")))
    message = near.shared.remote(7)
    facts = get(beside.look.remote(message))
    assert (facts["value"], facts["memory"], facts["readonly"]) == (7, "shm", False)
    assert facts["descriptor"] == before["descriptor"] + 1 and facts["object_store"] == before["object_store"]
    get(beside.write.remote(message, 9))
    assert get(near.look.remote(message))["value"] == 9  # it is the same memory


def test_the_driver_of_the_same_node_gets_the_memory_itself(near: Any) -> None:
    message = get(near.shared.remote(5))
    assert (message["number"], str(message["frame"].memory), message["frame"][0].item()) == (5, "shm", 5)


def test_what_the_driver_shares_goes_by_descriptor_inside_its_node_and_is_refused_elsewhere(
    beside: Any, far: Any
) -> None:
    message = ray.put({"frame": share(tm.full(1000, 2, "int32", memory="shm"))}, _tensor_transport="tensormem")
    assert get(beside.look.remote(message))["memory"] == "shm"
    with pytest.raises(errors.NotSupported, match="let an actor share it"):
        get(far.look.remote(message))


def test_shared_memory_goes_to_another_node_as_ray_carries_it(near: Any, far: Any) -> None:
    facts = get(far.look.remote(near.shared.remote(6)))
    assert (facts["value"], facts["memory"], facts["descriptor"], facts["object_store"]) == (6, "mem", 0, 1)


def test_memory_without_a_descriptor_goes_as_ray_carries_it(near: Any, beside: Any) -> None:
    facts = get(beside.look.remote(near.shared.remote(4, memory="mem")))
    assert (facts["value"], facts["memory"]) == (4, "mem")


def test_what_is_shared_to_be_read_cannot_be_written(near: Any, beside: Any) -> None:
    assert get(beside.look.remote(near.shared.remote(4, readonly=True)))["readonly"]


def test_more_than_the_object_store_holds_goes_by_descriptor(near: Any, beside: Any) -> None:
    size = 256 * MEBIBYTE  # the store has 96 MiB
    assert get(beside.look.remote(near.shared.remote(3, size)))["value"] == 3


def test_a_full_object_store_spills_as_ray_does_and_tensors_come_back_whole(cluster: Any) -> None:
    size = 40 * MEBIBYTE  # the store has 96 MiB
    references = [ray.put(tm.full(size, number, "uint8")) for number in range(4)]
    for number, reference in enumerate(references):
        arrived = get(reference)
        assert (arrived.nbytes, arrived[0].item(), arrived[-1].item()) == (size, number, number)
        del arrived


def test_memory_goes_when_ray_knows_nobody_who_refers_to_it(near: Any, beside: Any) -> None:
    before = get(near.held.remote())
    messages = [near.shared.remote(number) for number in range(4)]
    get([beside.look.remote(each) for each in messages])
    assert get(near.held.remote()) == before + 4
    del messages
    eventually(lambda: bool(get(near.held.remote()) == before), "the owner holds on to it")


def test_memory_stays_with_who_has_it_when_its_maker_is_killed(beside: Any) -> None:
    maker = start(FIRST)
    get(beside.keep.remote(maker.shared.remote(8)))
    os.kill(get(maker.pid.remote()), signal.SIGKILL)
    assert get(beside.kept_value.remote()) == 8
    get(beside.drop.remote())


@pytest.mark.parametrize("taken_before", [False, True])
def test_memory_of_a_killed_maker_is_an_error_that_names_it_for_who_has_not_taken_it(
    beside: Any, taken_before: bool
) -> None:
    maker = start(FIRST)
    message = maker.shared.remote(8)
    pid = get(maker.pid.remote())  # which comes after the frame was made
    if taken_before:
        assert get(beside.look.remote(message))["value"] == 8
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{pid}/fd/0"), "it does not die")
    with pytest.raises(Exception, match=f"worker {pid} of node|pid={pid}|died|dead") as caught:
        get(beside.look.remote(message))
    assert isinstance(caught.value, errors.WorkerDied | ray.exceptions.RayError)
    assert get(beside.pid.remote()) > 0  # and the one who asked lives


def test_a_receiver_killed_while_it_receives_leaves_the_maker_as_it_was(near: Any, beside: Any) -> None:
    receiver = start(FIRST)
    pid = get(receiver.pid.remote())
    with pytest.raises(ray.exceptions.RayActorError):
        get(receiver.look.remote(near.deadly.remote(pid)))
    assert get(beside.look.remote(near.shared.remote(4)))["value"] == 4


@pytest.mark.filterwarnings("ignore:RDT ObjectRef")
def test_a_receiver_that_is_killed_leaves_the_maker_as_it_was(near: Any) -> None:
    receiver = start(FIRST)
    message = near.shared.remote(8)
    get(receiver.keep.remote(message))
    os.kill(get(receiver.pid.remote()), signal.SIGKILL)
    assert get(near.look.remote(message))["value"] == 8


def test_two_clusters_on_one_host_do_not_hear_of_each_other(near: Any, cluster: Any) -> None:
    done = run_python(
        f"""
        import sys
        sys.path.insert(0, {TESTS!r})
        from support.clusters import ray_cluster
        from support.stages import FIRST, get, start
        with ray_cluster(nodes=1):
            maker, other = start(FIRST), start(FIRST)
            print(get(other.look.remote(maker.shared.remote(3))))
        """
    )
    assert "'value': 3, 'memory': 'shm'" in done.stdout, done.stderr
    assert get(near.look.remote(near.shared.remote(2)))["value"] == 2
