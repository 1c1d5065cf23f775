"""An OutOfMemory explains itself."""

import json
import pickle
from pathlib import Path

import pytest

import tensormem as tm
from support.python_processes import check_python
from tensormem import errors, mr


def shortage(resource: mr.DeviceMemoryResource, nbytes: int, tag: str = "late") -> errors.OutOfMemory:
    with pytest.raises(errors.OutOfMemory) as raised:
        resource.allocate(nbytes, tag=tag)
    return raised.value


def test_the_report_says_who_holds_what_and_how_the_free_memory_lies() -> None:
    pool = mr.PoolMemoryResource(mr.HostMemoryResource(), maximum_pool_size="1MiB")
    blocks = [pool.allocate("64KiB", tag="weights" if number % 2 else "cache") for number in range(16)]
    for number in range(0, 16, 2):
        pool.deallocate(blocks[number])
    error = shortage(pool, 128 * 1024)
    report = error.report()
    assert report.requested == 128 * 1024 and report.tag == "late"
    assert [(holder.tag, holder.nbytes, holder.blocks) for holder in report.holders] == [("weights", 512 * 1024, 8)]
    pool_layer, host_layer = report.layers
    assert pool_layer.figures["largest free"] == 64 * 1024 and pool_layer.fragmentation == pytest.approx(7 / 8)
    assert host_layer.outstanding_bytes == 2**20
    assert any("in pieces" in hint for hint in report.hints)
    text = str(report)
    for expected in ("weights: 512 KiB in 8 blocks", "PoolMemoryResource", "What would help:", "fragmentation 88%"):
        assert expected in text, text
    assert json.loads(json.dumps(report.as_json()))["holders"][0]["tag"] == "weights"


def test_over_a_budget_the_limit_is_the_first_hint() -> None:
    limited = mr.LimitingResourceAdaptor(mr.HostMemoryResource(), "1MiB")
    kept = limited.allocate("1000KiB", tag="kept")
    with pytest.raises(errors.OutOfBudget) as raised:
        limited.allocate("100KiB")
    report = raised.value.report()
    assert report.hints[0] == "raise the limit of 1 MiB, or free 76 KiB"
    assert report.holders[0].tag == kept.tag


def test_an_error_that_nobody_raised_has_nothing_to_report() -> None:
    with pytest.raises(errors.InvalidArgument, match="nothing to report"):
        errors.OutOfMemory(1, 0, 0).report()


def test_an_error_in_another_process_keeps_its_facts_and_leaves_its_resource_behind() -> None:
    pool = mr.PoolMemoryResource(mr.HostMemoryResource(), maximum_pool_size="1MiB")
    copied = pickle.loads(pickle.dumps(shortage(pool, 2**21)))
    assert copied.requested == 2**21
    with pytest.raises(errors.InvalidArgument):
        copied.report()


def test_the_innermost_resource_that_was_asked_is_reported_once() -> None:
    class Passing(mr.DeviceMemoryResource):
        pass

    pool = mr.PoolMemoryResource(mr.HostMemoryResource(), maximum_pool_size="1MiB")
    report = shortage(Passing(pool), 2**21).report()
    assert report.layers[0].name.startswith("Passing")


@pytest.mark.parametrize("name", ["oom.txt", "oom-{pid}.json"])
def test_a_dump_is_written_when_the_environment_says_so(tmp_path: Path, name: str) -> None:
    check_python(f"""
        import os
        os.environ["TENSORMEM_OOM_DUMP"] = {str(tmp_path / name)!r}
        from tensormem import mr
        pool = mr.PoolMemoryResource(mr.HostMemoryResource(), maximum_pool_size="1MiB")
        kept = pool.allocate("512KiB", tag="kept")
        try:
            pool.allocate("1MiB")
        except MemoryError:
            pass
        """)
    (written,) = tmp_path.iterdir()
    assert "kept" in written.read_text()
    if written.suffix == ".json":
        assert json.loads(written.read_text())["version"] == 1


def test_a_dump_that_cannot_be_written_warns_and_the_error_is_the_same(tmp_path: Path) -> None:
    said = check_python(f"""
        import os, warnings
        os.environ["TENSORMEM_OOM_DUMP"] = {str(tmp_path / "no" / "where")!r}
        from tensormem import errors, mr
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                mr.PoolMemoryResource(mr.HostMemoryResource(), maximum_pool_size="1MiB").allocate("2MiB")
            except errors.OutOfMemory as error:
                print(error.requested)
        print([warning.category.__name__ for warning in caught])
        """)
    assert said.split("\n")[:2] == [str(2**21), "['RuntimeWarning']"]


def test_a_budget_that_is_asked_by_hand_and_a_manager_of_pages_report_as_everybody_does() -> None:
    tenants = tm.TenantPool("1MiB")
    with tenants:
        budget = tenants.register("chat", "16MiB").budget
        with pytest.raises(errors.OutOfPhysicalMemory) as caught:
            budget.claim("2MiB")
        assert caught.value.report().layers[0].figures["limit"] == 1 << 20
    with tm.VirtualMemoryManager() as vmm, pytest.raises(errors.OutOfPhysicalMemory) as caught:
        vmm.alloc_physical(1 << 50)
    report = caught.value.report()
    assert report.requested >= 1 << 50 and report.layers[0].name == "VirtualMemoryManager"
