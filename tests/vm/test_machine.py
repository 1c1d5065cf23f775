"""The parts of the virtual machine that can be looked at without booting it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from vm.machine import archive, guest_run, reporter
from vm.machine.computer import Computer
from vm.machine.kernel import Kernel, find_kernel
from vm.machine.means import MissingMeans, run
from vm.machine.ramdisk import INIT, Share, build_ramdisk


def toy_kernel(folder: Path, config: str) -> Kernel:
    """Two modules, of which one needs the other."""
    (folder / "modules").mkdir()
    (folder / "modules" / "9p.ko").write_bytes(b"\0depends=netfs\0")
    (folder / "modules" / "netfs.ko").write_bytes(b"\0depends=\0")
    (folder / "config").write_text(config)
    return Kernel(folder / "vmlinuz-6.12-toy", folder / "modules", folder / "config")


def test_a_kernel_counts_only_if_its_configuration_has_everything(tmp_path: Path) -> None:
    kernel = toy_kernel(tmp_path, "CONFIG_UDMABUF=y\nCONFIG_DMABUF_HEAPS=m\n# CONFIG_SYNC_FILE is not set\n")
    assert kernel.lacks() == ["CONFIG_DMABUF_HEAPS", "CONFIG_DMABUF_HEAPS_SYSTEM", "CONFIG_SYNC_FILE"]
    assert kernel.version == "6.12-toy"


def test_modules_are_loaded_after_what_they_need_and_built_in_ones_not_at_all(tmp_path: Path) -> None:
    assert toy_kernel(tmp_path, "").load_order(["9p", "netfs", "built_in"]) == ["netfs", "9p"]


def test_the_ramdisk_is_an_archive_that_others_can_read(tmp_path: Path) -> None:
    shares = [Share(Path("/a"), Path("/b")), Share(Path("/c"), Path("/d"), writable=True)]
    try:
        ramdisk = build_ramdisk(toy_kernel(tmp_path, ""), shares, {"lib": "usr/lib", "usr/lib64/loader": "/somewhere"})
    except MissingMeans as missing:
        pytest.skip(str(missing))
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["busybox", "cpio", "-i"], input=ramdisk, cwd=unpacked, check=True, capture_output=True)
    assert (unpacked / "shares").read_text() == "share0 ro /b\nshare1 rw /d\n"
    assert (unpacked / "init").read_text() == INIT and os.access(unpacked / "init", os.X_OK)
    assert sorted(file.name for file in (unpacked / "modules").iterdir()) == ["00-netfs.ko", "01-9p.ko"]
    assert os.readlink(unpacked / "usr/lib64/loader") == "/somewhere"


def test_results_are_read_as_far_as_they_came(tmp_path: Path) -> None:
    lines = [("a", "running"), ("a", "passed"), ("b", "running"), ("b", "failed"), ("b", "passed"), ("c", "running")]
    text = "".join(json.dumps({"nodeid": node, "outcome": outcome, "text": ""}) + "\n" for node, outcome in lines)
    (tmp_path / reporter.FILE).write_text(text)
    outcomes = {nodeid: outcome for nodeid, (outcome, _) in reporter.read(tmp_path).items()}
    assert outcomes == {"a": "passed", "b": "failed", "c": "running"}
    assert reporter.read(tmp_path / "nowhere") == {}


def test_what_is_not_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = toy_kernel(tmp_path, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingMeans, match=r"qemu-system-x86_64 is not installed \(apt-get install qemu-system-x86\)"):
        Computer(kernel, [], {})
    with pytest.raises(MissingMeans, match=r"apt-get install busybox-static"):
        build_ramdisk(kernel, [], {})
    with pytest.raises(MissingMeans, match="no-such-program is not installed"):
        run("no-such-program")


def test_a_machine_that_cannot_be_had_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def missing() -> Kernel:
        asked.append("kernel")
        raise MissingMeans("no kernel here")

    monkeypatch.setattr(guest_run, "find_kernel", missing)
    some = guest_run.GuestRun(["one", "two"])
    for nodeid in ("one", "two"):
        with pytest.raises(MissingMeans, match="no kernel here"):
            some.result(nodeid)
    assert asked == ["kernel"]


def test_other_distributions_and_computers_are_told_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vm.machine.kernel.CACHE", tmp_path)
    monkeypatch.setattr("vm.machine.kernel.release", lambda: ("slackware", "15"))
    with pytest.raises(MissingMeans, match="this is slackware"):
        find_kernel()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(MissingMeans, match="not on riscv64"):
        find_kernel()
    assert len(archive.release()) == 2
