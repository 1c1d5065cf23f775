"""What the machine report finds, on machines made of files in a folder and on the one the tests run on."""

import errno
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tensormem import errors
from tensormem.reports.machine import Area, Outcome, Status, System, examine
from tensormem.testing import simulated_gpu
from unit.fake_machine import FILES, THP, Machine, healthy_machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return healthy_machine(tmp_path)


def found(machine: System, name: str) -> Outcome:
    return examine(machine)[name].outcome


def test_a_healthy_machine_has_nothing_that_needs_attention(machine: Machine) -> None:
    assert examine(machine).degraded == ()


def test_every_area_has_findings_with_unique_names(machine: Machine) -> None:
    findings = examine(machine).findings
    assert {finding.area for finding in findings} == set(Area)
    assert len({finding.name for finding in findings}) == len(findings)


def test_a_machine_without_any_files_gives_the_same_findings_and_raises_nothing(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = examine(Machine(tmp_path_factory.mktemp("empty")))
    assert [finding.name for finding in empty.findings] == [finding.name for finding in examine(machine).findings]
    assert empty["main_memory"].outcome.status is Status.MISSING
    assert "/proc/meminfo: No such file or directory" in empty["main_memory"].outcome.reason


@pytest.mark.parametrize("nonsense", ["", "\n\n", "nonsense", "a: b: c", ":", "0:", "-1", "\xff\xfe", "CapEff: zz"])
def test_files_full_of_nonsense_are_reported_and_never_raised(machine: Machine, nonsense: str) -> None:
    for path in [*FILES, "/sys/fs/cgroup/memory.max", "/sys/bus/pci/devices/0/vendor", "/sys/bus/pci/devices/0/class"]:
        machine.write(path, nonsense)
    assert len(examine(machine).findings) > 20


def set_limit(kind: int, value: int) -> Callable[[Machine], None]:
    return lambda machine: machine.limits.update({kind: value})


def set_file(path: str, text: str) -> Callable[[Machine], None]:
    return lambda machine: machine.write(path, text)


def set_fact(name: str, value: object) -> Callable[[Machine], None]:
    return lambda machine: setattr(machine, name, value)


def forbid(path: str, file: str) -> Callable[[Machine], None]:
    def spoil(machine: Machine) -> None:
        machine.write(file, "")
        machine.forbidden.add(path)

    return spoil


def set_variable(name: str, value: str) -> Callable[[Machine], None]:
    return lambda machine: setattr(machine, "environ", {name: value})


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("memlock", set_limit(resource.RLIMIT_MEMLOCK, 8 * 2**20)),
        ("open_files", set_limit(resource.RLIMIT_NOFILE, 256)),
        ("max_map_count", set_fact("used_mappings", (100, 1000))),
        ("max_map_count", set_fact("used_mappings", (65000, 65530))),
        ("address_space", set_fact("addresses", errors.OutOfVirtualMemory(2**37))),
        ("overcommit", set_file("/proc/sys/vm/overcommit_memory", "2")),
        ("huge_pages", set_fact("huge", (False, "the kernel refuses"))),
        ("anonymous_huge_pages", set_file(f"{THP}/enabled", "always madvise [never]")),
        ("shmem_huge_pages", set_file(f"{THP}/shmem_enabled", "never [deny]")),
        ("available_memory", set_file("/proc/meminfo", "MemAvailable: 1024 kB")),
        ("memfd", set_fact("seals", False)),
        ("memfd", set_fact("seals", OSError(errno.EPERM, "Operation not permitted"))),
        ("posix_shm", forbid("/dev/shm", "/dev/shm/file")),
        ("dma_heap", forbid("/dev/dma_heap/system", "/dev/dma_heap/system")),
        ("udmabuf", forbid("/dev/udmabuf", "/dev/udmabuf")),
        ("TENSORMEM_MAX_STREAMS", set_variable("TENSORMEM_MAX_STREAMS", "many")),
        ("TENSORMEM_MAX_STEAMS", set_variable("TENSORMEM_MAX_STEAMS", "64")),
    ],
)
def test_what_should_work_and_does_not_is_degraded_with_advice(
    machine: Machine, name: str, spoil: Callable[[Machine], None]
) -> None:
    spoil(machine)
    assert [finding.name for finding in examine(machine).degraded] == [name]
    assert found(machine, name).reason
    assert found(machine, name).advice


def test_a_full_shm_folder_is_degraded_and_an_absent_one_is_missing(machine: Machine) -> None:
    assert found(machine, "posix_shm").status is Status.MISSING
    machine.write("/dev/shm/file", "")
    assert found(machine, "posix_shm").status is Status.WORKS
    machine.shm = (2**26, 4096)
    assert found(machine, "posix_shm").status is Status.DEGRADED


def test_a_low_memlock_limit_does_not_matter_to_a_process_that_may_lock_anyway(machine: Machine) -> None:
    machine.limits[resource.RLIMIT_MEMLOCK] = 65536
    machine.write("/proc/self/status", "CapEff:\t0000000000004000\n")
    assert found(machine, "memlock") == Outcome(Status.WORKS, 65536, found(machine, "memlock").reason, unit="bytes")


def test_usable_dma_heaps_are_named(machine: Machine) -> None:
    machine.write("/dev/dma_heap/reserved", "")
    machine.write("/dev/dma_heap/system", "")
    machine.forbidden.add("/dev/dma_heap/reserved")
    assert found(machine, "dma_heap").value == "system"


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/user/app", {"user/app/memory.max": "max", "user/memory.max": "1048576"}, 1048576),
        ("0::/user/app", {"user/app/memory.max": "4096", "user/memory.max": "1048576"}, 4096),
        ("0::/", {}, "unlimited"),
        ("4:memory:/box\n0::/", {"memory/box/memory.limit_in_bytes": "8192"}, 8192),
        ("4:cpu,memory:/box", {"memory/memory.limit_in_bytes": "9223372036854771712"}, "unlimited"),
        ("4:cpu:/box", {"memory/memory.limit_in_bytes": "8192"}, "unlimited"),
    ],
)
def test_the_tightest_memory_limit_of_the_control_groups_counts(
    machine: Machine, groups: str, files: dict[str, str], limit: int | str
) -> None:
    machine.write("/proc/self/cgroup", groups)
    for path, text in files.items():
        machine.write(f"/sys/fs/cgroup/{path}", text)
    assert found(machine, "cgroup_memory").value == limit


# --- Drivers ---------------------------------------------------------------------------------------------------------


def put_gpu(machine: Machine, vendor: str) -> None:
    machine.write("/sys/bus/pci/devices/0000:01:00.0/vendor", f"{vendor}\n")
    machine.write("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")


@pytest.mark.parametrize("driver", ["cuda", "rocm"])
def test_a_gpu_that_the_machine_does_not_have_needs_no_attention(machine: Machine, driver: str) -> None:
    assert found(machine, driver).status is Status.MISSING
    assert "was not found" in found(machine, driver).reason
    assert found(machine, driver).advice == "Nothing to do here"


@pytest.mark.parametrize(("driver", "vendor"), [("cuda", "0x10de"), ("rocm", "0x1002")])
def test_a_gpu_without_its_library_says_what_to_install(machine: Machine, driver: str, vendor: str) -> None:
    put_gpu(machine, vendor)
    assert "GPUs seen: 1" in found(machine, driver).reason
    assert found(machine, driver).advice.startswith("Install ")


@pytest.mark.parametrize(("driver", "library"), [("cuda", "libcuda.so.1"), ("rocm", "libamdhip64.so.6")])
def test_a_driver_that_cannot_be_used_says_why_and_what_to_do(machine: Machine, driver: str, library: str) -> None:
    machine.libraries[library] = ""
    assert found(machine, driver) == Outcome(Status.MISSING, library, "it does not work", "Mend it")


def test_a_simulated_gpu_is_reported_as_simulated() -> None:
    with simulated_gpu(devices=1, memory="32MiB"):
        assert found(System(), "cuda").status is Status.WORKS
        assert found(System(), "cuda").reason == "simulated: 1 device (tensormem simulated GPU 0)"


def test_a_library_that_is_there_but_broken_is_told_apart_from_one_that_is_not(machine: Machine) -> None:
    machine.libraries["libcuda.so.1"] = "libcuda.so.1: wrong ELF class: ELFCLASS32"
    assert "wrong ELF class" in found(machine, "cuda").reason


def test_an_egl_library_without_its_function_is_missing_with_advice(machine: Machine) -> None:
    machine.libraries["libEGL.so.1"] = ""
    assert found(machine, "opengl").status is Status.MISSING
    assert "eglQueryString" in found(machine, "opengl").reason
    assert "apt-get install" in found(machine, "opengl").command


# --- This machine ----------------------------------------------------------------------------------------------------


def test_on_this_machine_the_host_driver_works_and_sealed_memory_holds() -> None:
    report = examine()
    assert report.usable
    assert System().sealed_memory_holds()
    used, limit = System().mappings()
    assert 0 < used < limit


def test_optional_libraries_are_found_without_being_imported() -> None:
    code = (
        "import sys; from tensormem.reports.machine import examine; examine();"
        "print([name for name in ('numpy', 'torch', 'click', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
