"""DMA-BUFs where there are none, and the parts that need none; what needs some is tested in tests/vm."""

import errno
import os
import struct
from pathlib import Path

import pytest

import tensormem as tm
from tensormem import errors
from tensormem.memories import dma, is_available
from tensormem.memories.dma import descriptor, device, heaps, ioctls, names, udmabuf
from tensormem.memories.dma.egl_image import DmaTexture, why_no_textures
from tensormem.memories.dma.mapping import Mapping


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    # Most machines have none anyway; on the others we look elsewhere.
    monkeypatch.setattr(heaps, "FOLDER", "/dev/dma_heap_elsewhere")
    monkeypatch.setattr(udmabuf, "DEVICE", "/dev/udmabuf_elsewhere")


@pytest.mark.usefixtures("no_devices")
def test_an_explicit_choice_is_refused_with_the_reason_and_what_to_do() -> None:
    with pytest.raises(errors.MemoryUnavailable) as caught:
        tm.zeros((4, 4), memory="dma")
    assert caught.value.kind == "dma" and caught.value.reason == dma.why_not()
    for wanted in ("/dev/dma_heap", "CONFIG_DMABUF_HEAPS", "--device", "/dev/udmabuf", "CONFIG_UDMABUF"):
        assert wanted in str(caught.value)


@pytest.mark.usefixtures("no_devices")
def test_availability_gives_the_same_reason() -> None:
    found = is_available("dma")
    assert not found and found.reason == dma.why_not()


@pytest.mark.usefixtures("no_devices")
def test_a_heap_or_udmabuf_by_name_is_refused_as_well() -> None:
    for heap in ("system", "linux,cma", "udmabuf"):
        with pytest.raises(errors.MemoryUnavailable, match="there is no"):
            dma.allocate(4096, heap=heap)
    assert dma.list_heaps() == [] and heaps.preferred_heaps() == []


@pytest.mark.usefixtures("no_devices")
def test_a_use_goes_on_to_the_next_kind_and_says_why() -> None:
    tensor = tm.zeros(4, use="gpu")
    assert tensor.memory != "dma" and f"no dma: {dma.why_not()}" in tensor.memory_reason


def test_contiguous_heaps_come_first_and_special_ones_only_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heaps, "FOLDER", str(tmp_path))
    monkeypatch.setattr(udmabuf, "DEVICE", "/dev/udmabuf_elsewhere")
    (tmp_path / "protected").touch()
    assert "(protected) are for special purposes" in (dma.why_not() or "")
    for name in ("system", "linux,cma", "reserved"):
        (tmp_path / name).touch()
    assert dma.list_heaps() == ["linux,cma", "protected", "reserved", "system"]
    assert heaps.preferred_heaps() == ["linux,cma", "reserved", "system"]
    with pytest.raises(errors.MemoryUnavailable, match="this machine has linux,cma, protected, reserved, system"):
        dma.allocate(64, heap="other")
    with pytest.raises(errors.DriverError) as caught:
        dma.allocate(64, heap="linux,cma")  # a plain file, which answers no question
    assert caught.value.name == "ENOTTY"


def test_sizes_and_spaces_are_checked_before_anything_is_opened() -> None:
    for wrong in (0, -1, 2**63, "12 potatoes", 1.5, True):
        with pytest.raises(errors.InvalidSize):
            dma.allocate(wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.MemoryUnavailable, match="main memory"):
        dma.allocate(64, tm.pinned)


def test_other_files_are_no_dma_bufs_and_stay_open() -> None:
    memory = os.memfd_create("other")
    os.ftruncate(memory, 4096)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.InvalidArgument, match="is no DMA-BUF: its file system is of type 0x"):
        dma.from_fd(memory)
    assert not dma.is_dma_buf(memory) and len(os.listdir("/proc/self/fd")) == before
    os.close(memory)
    with pytest.raises(errors.InvalidArgument, match="is not open"):
        dma.from_fd(memory)
    for wrong in (-1, 2**31, True, "1", None):
        with pytest.raises(errors.InvalidArgument):
            dma.from_fd(wrong)  # type: ignore[arg-type]


def test_a_descriptor_is_taken_over_and_closed_if_it_cannot_be_used() -> None:
    memory = os.memfd_create("other")
    with pytest.raises(errors.InvalidArgument):
        dma.DmaBuffer(memory)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(memory)
    with pytest.raises(errors.InvalidArgument):
        descriptor.Descriptor.inspect(memory)


def test_the_numbers_are_those_of_the_kernel() -> None:
    # As strace prints them on x86 and ARM.
    assert (ioctls.SYNC, ioctls.SET_NAME) == (0x40086200, 0x40086201)
    assert (ioctls.EXPORT_SYNC_FILE, ioctls.IMPORT_SYNC_FILE) == (0xC0086202, 0x40086203)
    assert (ioctls.HEAP_ALLOC, ioctls.UDMABUF_CREATE) == (0xC0184800, 0x40187542)
    assert struct.calcsize("=QIIQ") == struct.calcsize("=IIQQ") == 24 and struct.calcsize("=Ii") == 8


def test_a_device_that_is_closed_names_the_group_to_join(tmp_path: Path) -> None:
    file = tmp_path / "system"
    file.touch()
    os.chown(file, os.getuid(), os.getgid())
    for mode, wanted in ((0o600, "udev rule"), (0o660, "udev rule" if os.getgid() == 0 else "usermod -aG")):
        file.chmod(mode)
        refused = device.refusal(PermissionError(errno.EACCES, ""), str(file), "")
        assert isinstance(refused, errors.MemoryUnavailable)
        assert f"mode {mode:04o}" in refused.reason and wanted in refused.reason
    in_container = device.refusal(PermissionError(errno.EPERM, ""), str(file), "")
    assert f"--device={file}" in str(in_container)
    assert isinstance(device.refusal(OSError(errno.EMFILE, ""), str(file), ""), errors.DriverError)


def test_both_mappings_of_a_file_are_one_memory_and_go_at_once() -> None:
    memory = os.memfd_create("pages")
    os.ftruncate(memory, 8192)
    mapping = Mapping(memory, 8192)
    reading, writing = mapping.address(writable=False), mapping.address(writable=True)
    tm.from_pointer(writing, 8192, owner=mapping).fill_(7)
    assert set(tm.from_pointer(reading, 8192, owner=mapping, readonly=True).tolist()) == {7}
    rows = [row for row in Path("/proc/self/maps").read_text().splitlines() if "memfd:pages" in row]
    assert sorted(row.split()[1] for row in rows) == ["r--s", "rw-s"]
    mapping.unmap()
    mapping.unmap()
    assert "memfd:pages" not in Path("/proc/self/maps").read_text()
    os.close(memory)


def test_a_mapping_that_the_kernel_refuses_is_an_error_with_its_reason() -> None:
    reading, writing = os.pipe()
    with pytest.raises(errors.DriverError) as caught:
        Mapping(reading, 4096).address(writable=False)
    assert caught.value.name in ("ENODEV", "EACCES") and caught.value.call == "mmap of 4096 bytes"
    os.close(reading)
    os.close(writing)


def test_names_are_cut_at_whole_characters() -> None:
    assert names.shortened("ä" * 20) == "ä" * 15 and names.shortened("a\nb") == "ab"
    assert names.shortened(None) is None


def test_a_limit_that_cannot_be_read_is_no_limit() -> None:
    if not Path("/sys/module/udmabuf").exists():
        assert udmabuf.size_limit() is None


def test_a_texture_over_other_memory_is_refused_and_a_missing_extension_is_named() -> None:
    with pytest.raises(errors.InvalidArgument, match="of mem memory"):
        DmaTexture(tm.zeros((2, 16, 4), "uint8"))
    reason = why_no_textures()
    assert reason is None or "EGL" in reason


def test_rows_of_images_begin_at_multiples_of_64_bytes() -> None:
    assert dma.row_pitch_alignment == 64
