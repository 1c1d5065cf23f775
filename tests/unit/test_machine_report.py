"""What the machine report finds, on machines made of files in a folder and on the one the tests run on."""

import errno
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tensormem import errors
from tensormem.drivers import ProbeResult
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


ABSENT = "libcuda.so.1 cannot be opened: libcuda.so.1: cannot open shared object file: No such file or directory"


def say(machine: Machine, reason: str, *, works: bool = False) -> None:
    machine.gpu_drivers = [ProbeResult(name, works, reason, "" if works else "Mend it") for name in ("cuda", "rocm")]


@pytest.mark.parametrize("driver", ["cuda", "rocm"])
def test_a_gpu_that_the_machine_does_not_have_needs_no_attention(machine: Machine, driver: str) -> None:
    say(machine, ABSENT)
    assert found(machine, driver).status is Status.MISSING
    assert "GPU is seen either" in found(machine, driver).reason
    assert found(machine, driver).advice == "Nothing to do here"


@pytest.mark.parametrize(("driver", "vendor"), [("cuda", "0x10de"), ("rocm", "0x1002")])
def test_a_gpu_without_its_library_says_what_to_install(machine: Machine, driver: str, vendor: str) -> None:
    say(machine, ABSENT)
    put_gpu(machine, vendor)
    assert "GPUs seen: 1" in found(machine, driver).reason
    assert found(machine, driver).advice.startswith("Install ")


@pytest.mark.parametrize("driver", ["cuda", "rocm"])
def test_a_driver_that_cannot_be_used_says_why_and_what_to_do(machine: Machine, driver: str) -> None:
    for path in ("nvidiactl", "nvidia-uvm", "nvidia0", "kfd", "dri/renderD128"):
        machine.write(f"/dev/{path}", "")
    assert found(machine, driver) == Outcome(Status.MISSING, "", "it does not work", "Mend it")


def test_a_simulated_gpu_is_reported_as_simulated_with_its_file_and_its_devices() -> None:
    with simulated_gpu(devices=1, memory="32MiB") as gpu:
        report = examine(System())
        assert report["cuda"].outcome.status is Status.WORKS
        assert report["cuda"].outcome.reason == f"simulated: 1 device (tensormem simulated GPU 0), from {gpu.library}"
        assert (report["cuda:0"].outcome.status, report["cuda:0"].outcome.value) == (Status.WORKS, 2**25)


@pytest.mark.parametrize(("option", "lacks"), [("pools", "GpuAsyncMemoryResource"), ("virtual", "Elastic pools")])
def test_a_device_without_pools_or_virtual_memory_works_only_in_part(option: str, lacks: str) -> None:
    with simulated_gpu(1, "32MiB", **{option: 0}):  # type: ignore[arg-type]
        outcome = found(System(), "cuda:0")
    assert outcome.status is Status.DEGRADED
    assert lacks in outcome.advice


@pytest.mark.parametrize("vendor", ["cuda", "rocm"])
def test_a_device_says_what_it_can_do_and_what_not(vendor: str) -> None:
    with simulated_gpu(devices=1, memory="32MiB", vendor=vendor, managed=0):
        reason = found(System(), f"{vendor}:0").reason
    assert "has pools, virtual memory, POSIX handles" in reason
    assert "has no managed memory, concurrent managed access" in reason


def test_the_file_that_was_taken_and_those_that_were_not_are_named(machine: Machine) -> None:
    say(machine, "1 device (GPU)", works=True)
    machine.file = ("/opt/rocm/lib/libamdhip64.so.7", [("libamdhip64.so", "libamdhip64.so: file too short")])
    reason = found(machine, "rocm").reason
    assert "from /opt/rocm/lib/libamdhip64.so.7; not taken: libamdhip64.so (" in reason
    assert "too short" in reason


def test_a_library_that_a_variable_names_and_that_does_not_serve_needs_attention(machine: Machine) -> None:
    say(machine, "TENSORMEM_CUDA_LIBRARY names /x.so, but /x.so cannot be opened: there is no such file")
    assert found(machine, "cuda").status is Status.DEGRADED


NO_DEVICE = "the driver is there, but it finds no device"


def test_missing_nodes_in_a_container_name_its_flags(machine: Machine) -> None:
    say(machine, NO_DEVICE)
    machine.write("/.dockerenv", "")
    assert "/dev/nvidiactl" in found(machine, "cuda").reason
    assert "--gpus all" in found(machine, "cuda").advice
    assert "/dev/kfd, /dev/dri/renderD* in this container" in found(machine, "rocm").reason
    assert "--device /dev/kfd --device /dev/dri" in found(machine, "rocm").advice


def test_missing_nodes_of_a_gpu_that_is_seen_name_the_kernel_module(machine: Machine) -> None:
    say(machine, NO_DEVICE)
    put_gpu(machine, "0x10de")
    assert found(machine, "cuda").status is Status.DEGRADED
    assert found(machine, "cuda").command == "sudo modprobe nvidia"


def test_a_node_that_the_user_may_not_open_names_its_group(machine: Machine) -> None:
    say(machine, NO_DEVICE)
    put_gpu(machine, "0x1002")
    for path in ("/dev/kfd", "/dev/dri/renderD128"):
        machine.write(path, "")
    machine.forbidden.add("/dev/kfd")
    group = System().group(str(machine.root / "dev/kfd"))
    assert found(machine, "rocm").status is Status.DEGRADED
    assert "may not open /dev/kfd" in found(machine, "rocm").reason
    assert found(machine, "rocm").command == f'sudo usermod -aG {group} "$USER"'


@pytest.mark.parametrize(
    ("driver", "variable"),
    [("cuda", "CUDA_VISIBLE_DEVICES"), ("rocm", "HIP_VISIBLE_DEVICES"), ("rocm", "ROCR_VISIBLE_DEVICES")],
)
def test_a_variable_that_hides_devices_is_named(machine: Machine, driver: str, variable: str) -> None:
    say(machine, NO_DEVICE)
    machine.environ = {variable: ""}
    assert f"{variable} is '' and hides devices" in found(machine, driver).reason
    assert found(machine, driver).command == f"unset {variable}"


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
