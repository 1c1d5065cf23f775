"""`tensormem top`: a process offers its figures on request, to its own user alone, and leaves nothing behind."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import pytest

import tensormem as tm
from support.python_processes import check_python
from tensormem import errors
from tensormem.top import messages

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/top.schema.json").read_text())
APP = """
import sys
import tensormem as tm
block = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource()).allocate("3MiB", tag="app")
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for sockets of this test alone."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path / "tensormem"
    tm.top.close()


@contextmanager
def watched_process(source: str = APP, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", source],
        env={**os.environ, "TENSORMEM_TOP": "1", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def end(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(60)


def raw_connection(service: tm.top.Service) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(service.path)
    return connection


def answer_to(connection: socket.socket, line: bytes) -> dict[str, object]:
    connection.sendall(line)
    with connection.makefile("rb") as file:
        answer: dict[str, object] = json.loads(file.readline())
        return answer


# --- Offering and asking ---


def test_the_environment_makes_a_process_watchable_and_nothing_is_left_after_it_ends(home: Path) -> None:
    with watched_process() as process:
        (offer,) = tm.top.offers()
        assert offer.pid == process.pid and offer.command.startswith(sys.executable)
        with tm.top.Watch(process.pid) as watch:
            answer = watch.ask()
        jsonschema.validate(answer, SCHEMA)
        assert answer["totals"]["used_bytes"] == 3 * 2**20
        assert [each["name"] for each in answer["resources"]] == ["HostMemoryResource", "PoolMemoryResource"]
        assert end(process) == 0
    assert list(home.iterdir()) == []


def test_without_being_asked_a_process_offers_nothing(home: Path) -> None:
    check_python(
        """
        import threading, tensormem as tm
        block = tm.mr.HostMemoryResource().allocate(64)
        tm.top.offers()
        assert threading.active_count() == 1 and not tm.top.offers()
        """
    )
    assert not home.exists()


def test_the_socket_is_for_its_owner_alone(home: Path) -> None:
    service = tm.top.serve()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(service.path).stat().st_mode) == 0o600


def test_serving_twice_is_serving_once_and_closing_ends_the_thread(home: Path) -> None:
    before = threading.active_count()
    service = tm.top.serve()
    assert tm.top.serve() is service and threading.active_count() == before + 1
    tm.top.close()
    tm.top.close()
    assert service.closed and threading.active_count() == before and list(home.iterdir()) == []
    with tm.top.serve() as another:
        assert another is not service and tm.top.offers()[0].pid == os.getpid()


def test_a_watcher_that_comes_back_sees_rates_at_once() -> None:
    service = tm.top.serve()
    mr, blocks = tm.mr.HostMemoryResource(), []
    with tm.top.Watch(service.pid) as watch:
        while not watch.ask()["rates"]["allocations_per_second"]:  # until the second sample is taken
            blocks.append(mr.allocate(4096))
    with tm.top.Watch(service.pid) as watch:
        answer = watch.ask()
    assert answer["rates"]["allocations_per_second"] > 0 and answer["rates"]["bytes_per_second"] > 0
    assert len(answer["history"]) >= 2


def test_tenants_pools_limits_and_pressure_are_told() -> None:
    limited = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), "1MiB")
    guarded = tm.mr.PressureResourceAdaptor(limited, lambda level, used: None, warn="100KiB", critical="1MiB")
    block = guarded.allocate("200KiB")
    with tm.TenantPool("64MiB") as models, tm.BlockCache("1GiB", "256KiB") as cache:
        chat = models.register("chat", "1GiB", guaranteed="4MiB", maximum="8MiB")
        held, ids = chat.allocate("2MiB"), cache.allocate(3)
        with tm.top.Watch(tm.top.serve().pid) as watch:
            answer = watch.ask()
        assert held.live and len(ids) == 3
    jsonschema.validate(answer, SCHEMA)
    assert answer["pressure"]["level"] == "warn"
    assert {each["limit_bytes"] for each in answer["resources"]} >= {2**20}
    (tenant,) = answer["tenants"]
    assert (tenant["name"], tenant["used_bytes"], tenant["maximum_bytes"]) == ("chat", 2 * 2**20, 8 * 2**20)
    assert {each["name"] for each in answer["pools"]} >= {"BlockCache", "VirtualMemoryPool of chat"}
    assert block.nbytes == 200 * 1024


def test_an_answer_has_a_largest_size_however_many_resources_there_are() -> None:
    many = [tm.mr.HostMemoryResource() for _ in range(300)]
    service = tm.top.serve()
    with tm.top.Watch(service.pid) as watch:
        answer = watch.ask()
    assert len(answer["resources"]) == 200 and answer["left_out"]["resources"] >= 100
    assert len(many) == 300


def test_a_resource_that_fails_when_it_is_asked_hides_no_other() -> None:
    class Odd(tm.mr.DeviceMemoryResource):
        @property
        def fragmentation(self) -> float:
            raise RuntimeError("no idea")

    host = tm.mr.HostMemoryResource()
    odd = Odd(host)
    service = tm.top.serve()
    with tm.top.Watch(service.pid) as watch:
        names = [each["name"] for each in watch.ask()["resources"]]
    assert "Odd" not in names and "HostMemoryResource" in names and odd.upstream_mr is host


# --- The end of the watched process ---


def test_a_killed_process_is_said_to_have_ended_and_its_socket_is_removed_by_the_next_reader(home: Path) -> None:
    with watched_process() as process, tm.top.Watch(process.pid) as watch:
        watch.ask()
        process.send_signal(signal.SIGKILL)
        process.wait()
        with pytest.raises(errors.CannotWatch, match="it has ended"):
            watch.ask()
        assert len(list(home.iterdir())) == 1
        assert tm.top.offers() == [] and list(home.iterdir()) == []
        with pytest.raises(errors.CannotWatch, match="no such process"):
            tm.top.Watch(process.pid)


def test_a_process_that_starts_to_serve_clears_what_others_left(home: Path) -> None:
    with watched_process() as process:
        process.kill()
    tm.top.serve()
    assert [path.name.partition("-")[0] for path in home.iterdir()] == [str(os.getpid())]


def test_a_stopped_process_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensormem.top.conversation.ANSWER_SECONDS", 0.05)
    with watched_process() as process, tm.top.Watch(process.pid) as watch:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        with pytest.raises(errors.CannotWatch, match="did not answer"):
            watch.ask()


# --- Forks ---


def test_a_forked_child_does_not_serve_its_parents_socket() -> None:
    service = tm.top.serve()
    pid = os.fork()
    if pid == 0:
        alone = threading.active_count() == 1 and service.closed and Path(service.path).exists()
        tm.top.close()
        os._exit(0 if alone and Path(service.path).exists() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with tm.top.Watch(service.pid) as watch:
        assert watch.ask()["pid"] == os.getpid()


def test_a_forked_child_serves_its_own_socket_when_the_environment_says_so() -> None:
    source = """
import os, sys
import tensormem as tm
tm.mr.HostMemoryResource()
pid = os.fork()
if pid:
    print("ready", flush=True)
sys.stdin.readline()
if pid:
    os.waitpid(pid, 0)
"""
    with watched_process(source) as process:
        while len(found := tm.top.offers()) < 2:
            pass
        assert process.pid in [offer.pid for offer in found]
        end(process)


# --- Places that are not safe ---


def test_a_symbolic_link_in_place_of_the_directory_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    home.symlink_to(tmp_path / "elsewhere")
    for attempt in (tm.top.serve, tm.top.offers):
        with pytest.raises(errors.CannotWatch, match="symbolic link"):
            attempt()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_directory_that_others_can_enter_is_refused(home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)
    with pytest.raises(errors.CannotWatch, match="0755"):
        tm.top.serve()
    assert list(home.iterdir()) == []


def test_a_directory_that_others_can_replace_is_refused(home: Path) -> None:
    home.parent.chmod(0o777)
    with pytest.raises(errors.CannotWatch, match="can replace"):
        tm.top.serve()


def test_an_unsafe_place_that_is_only_looked_into_is_passed_over(home: Path, tmp_path: Path) -> None:
    (tmp_path / f"tensormem-{os.geteuid()}").symlink_to(tmp_path)  # where TMPDIR points to
    tm.top.serve()
    assert [offer.pid for offer in tm.top.offers()] == [os.getpid()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_a_directory_of_somebody_else_is_refused(home: Path) -> None:
    home.mkdir(mode=0o700)
    os.chown(home, 65534, -1)
    for attempt in (tm.top.serve, tm.top.offers):
        with pytest.raises(errors.CannotWatch, match="belongs to user 65534, not to 0"):
            attempt()


def test_an_unsafe_place_does_not_keep_a_program_from_running(home: Path) -> None:
    home.write_text("in the way")
    result = subprocess.run(
        [sys.executable, "-c", "import tensormem as tm; print(tm.mr.HostMemoryResource().allocate(64).nbytes)"],
        env={**os.environ, "TENSORMEM_TOP": "1"},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout) == (0, "64\n") and "TENSORMEM_TOP=1 has no effect" in result.stderr


# --- Clients that misbehave ---


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"hello\n", "no line of JSON"),
        (b"[" * 4000 + b"\n", "no line of JSON"),
        (b"[1]\n", "not the schema"),
        (b'{"schema":"tensormem.top","version":9,"want":"snapshot"}\n', "version 9"),
        (b'{"schema":"tensormem.top","version":1,"want":"memory"}\n', "knows the requests"),
        (b"x" * 5000, "at most 4096 bytes"),
    ],
)
def test_a_request_that_makes_no_sense_gets_the_reason(line: bytes, complaint: str) -> None:
    with raw_connection(tm.top.serve()) as connection:
        assert complaint in str(answer_to(connection, line)["error"])


def test_requests_that_come_together_are_answered_one_by_one() -> None:
    with raw_connection(tm.top.serve()) as connection, connection.makefile("rb") as file:
        connection.sendall(messages.request("hello") * 3)
        assert [json.loads(file.readline())["pid"] for _ in range(3)] == [os.getpid()] * 3


def test_who_asks_without_reading_stalls_nobody_else() -> None:
    many = [tm.mr.HostMemoryResource() for _ in range(300)]  # answers that fill the socket
    service = tm.top.serve()
    with raw_connection(service) as greedy:
        greedy.setblocking(False)
        try:
            while True:
                greedy.send(messages.request("snapshot"))
        except BlockingIOError:
            pass
        with tm.top.Watch(service.pid) as watch:
            for _ in range(3):
                assert watch.ask()["pid"] == service.pid
    assert len(many) == 300


def test_more_watchers_than_there_is_room_for_are_told_so() -> None:
    service = tm.top.serve()
    waiting = [raw_connection(service) for _ in range(8)]
    try:
        for connection in waiting:
            assert "pid" in answer_to(connection, messages.request("hello"))
        with raw_connection(service) as ninth, ninth.makefile("rb") as file:
            assert b"8 watch already" in file.readline()
    finally:
        for connection in waiting:
            connection.close()
    while not (offers := tm.top.offers()):  # until it has seen them go
        pass
    assert offers[0].pid == service.pid


def test_forks_while_somebody_watches_end_well_and_the_service_goes_on() -> None:
    service, stopped, asked = tm.top.serve(), threading.Event(), []

    def look() -> None:
        with tm.top.Watch(service.pid) as watch:
            while not stopped.is_set():
                asked.append(watch.ask()["pid"])

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if service.closed else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        stopped.set()
        watcher.join()
    assert asked and set(asked) == {os.getpid()}
