"""Files of traces: damaged, torn, hostile; and their index."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensormem as tm
from fuzz.fuzz_trace_reader import read_all
from support.traces import record_steps, with_checksums
from tensormem.errors import TraceError
from tensormem.trace.file import TraceFile
from tensormem.trace.format import CHUNK, EVENT, EVENT_BYTES, HEADER_BYTES, ChunkType
from tensormem.trace.writing import TraceWriter


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("trace") / "run.tmt"
    record_steps(path, stacks=True)
    return path.read_bytes()


def test_a_closed_file_is_read_by_its_index_and_the_same_without(recording: bytes, tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole.tmt", tmp_path / "torn.tmt"
    whole.write_bytes(recording)
    torn.write_bytes(recording[: -CHUNK.size])
    with tm.trace.open(whole) as indexed, tm.trace.open(torn) as followed:
        assert indexed.complete and not followed.complete
        assert list(indexed.events()) == list(followed.events())
        assert indexed.names == followed.names


def test_a_file_that_was_cut_anywhere_is_read_up_to_there(recording: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.tmt"
    seen = 0
    for length in range(HEADER_BYTES, len(recording), 97):
        path.write_bytes(recording[:length])
        with tm.trace.open(path) as trace:
            events = len(list(trace.events()))
        assert events >= seen
        seen = events


def test_a_file_shorter_than_its_header_is_refused(recording: bytes, tmp_path: Path) -> None:
    path = tmp_path / "short.tmt"
    path.write_bytes(recording[: HEADER_BYTES - 1])
    with pytest.raises(TraceError, match="63 bytes"):
        tm.trace.open(path)


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        (0, "none of"),
        (5, "does not begin as a trace"),
        (20, "checksum of the header"),
        (HEADER_BYTES, "no chunk begins here"),
        (HEADER_BYTES + 30, "checksum of a chunk's header"),
        (HEADER_BYTES + CHUNK.size + 3, "checksum of a chunk"),
    ],
)
def test_one_wrong_byte_is_an_error_that_says_where(recording: bytes, tmp_path: Path, offset: int, why: str) -> None:
    path = tmp_path / "wrong.tmt"
    damaged = bytearray(recording[: -CHUNK.size])
    damaged[offset] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(TraceError, match=why) as raised, tm.trace.open(path) as trace:
        list(trace.events())
    assert 0 <= raised.value.offset <= len(damaged)


def test_another_version_is_refused_by_name(recording: bytes, tmp_path: Path) -> None:
    path = tmp_path / "newer.tmt"
    newer = bytearray(recording)
    struct.pack_into("<I", newer, 8, 2)
    struct.pack_into("<I", newer, HEADER_BYTES - 4, zlib.crc32(newer[: HEADER_BYTES - 4]))
    path.write_bytes(newer)
    with pytest.raises(TraceError, match="version 2"):
        tm.trace.open(path)


def test_room_that_was_never_filled_is_the_end_of_the_file(recording: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hole.tmt"
    path.write_bytes(recording + bytes(4096))
    with tm.trace.open(path) as trace:
        assert len(list(trace.events())) == trace.event_count > 0


def test_a_window_reads_its_own_chunks_only(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    leaf = tm.mr.HostMemoryResource()
    with tm.trace(path, flush_interval=60) as recording:
        for _ in range(20):
            leaf.deallocate(leaf.allocate(64))
            recording.flush()
    chunks = [chunk for chunk in TraceFile(path).chunks if chunk.type == ChunkType.EVENTS]
    data = bytearray(path.read_bytes())
    first, *_, last = sorted(chunks, key=lambda chunk: chunk.last_time)
    data[first.offset + CHUNK.size + 1] ^= 0xFF  # damage that nobody may look at
    path.write_bytes(data)
    with tm.trace.open(path) as trace:
        late = trace.window(max(first.last_time + 1, last.first_time), trace.duration_ns + 1)
        assert len(list(late.events())) > 0
        with pytest.raises(TraceError):
            list(trace.events())


@settings(max_examples=300, deadline=None)
@given(choices=st.data(), repaired=st.booleans())
def test_hostile_files_are_read_or_refused_and_nothing_else(
    recording: bytes, choices: st.DataObject, repaired: bool
) -> None:
    data = bytearray(recording)
    for _ in range(choices.draw(st.integers(1, 6))):
        at = choices.draw(st.integers(0, len(data) - 1))
        change = choices.draw(st.sampled_from(["flip", "number", "cut", "insert"]))
        if change == "flip":
            data[at] ^= choices.draw(st.integers(1, 255))
        elif change == "number":
            patch = choices.draw(st.sampled_from([b"\xff" * 8, bytes(8), b"\xff" * 4, b"\x01" + bytes(7)]))
            data[at : at + len(patch)] = patch[: len(data) - at]
        elif change == "cut":
            del data[at : at + choices.draw(st.integers(1, 200))]
            if len(data) == 0:
                break  # an empty file is read or refused as well
        else:
            data[at:at] = choices.draw(st.binary(max_size=64))
    read_all(with_checksums(data) if repaired and len(data) > HEADER_BYTES else bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_all(data)
    read_all(b"\x89TMT\r\n\x1a\n" + data)
    read_all(b"Thread,Time,Action,Pointer,Size,Stream\n" + data)
    read_all(b"id,lower,upper,size\n" + data)
    read_all(b"\x80\x04" + data)


def _written_with_index(change: Callable[[list[tuple[int, int, int, int, int, int]]], None], path: Path) -> None:
    """A sound file of two chunks of events, but for what `change` does to its index."""
    with path.open("wb") as out:
        writer = TraceWriter(out, wall_ns=0, monotonic_ns=0)
        for _ in range(2):
            writer.events(EVENT.pack(1, 4096, 64, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0) * 10, 1, 1, 1)
        change(writer._index)
        writer.close()


def test_an_index_that_names_a_chunk_many_times_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "many.tmt"
    _written_with_index(lambda index: index.extend(index * 50_000), path)
    with tm.trace.open(path) as trace:
        assert trace.event_count == 20 and not trace.complete


def test_a_chunk_that_reaches_into_the_next_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nested.tmt"
    inner = CHUNK.size + 2 * EVENT_BYTES  # into the events of the first chunk, where the index sees another

    def nest(index: list[tuple[int, int, int, int, int, int]]) -> None:
        offset, *rest = index[0]
        index.insert(1, (offset + inner, *rest))  # type: ignore[arg-type]

    _written_with_index(nest, path)
    with tm.trace.open(path) as trace, pytest.raises(TraceError, match="reaches into"):
        list(trace.events())
