"""The end of the interpreter: with running streams, pending work, live blocks and functions of Python in the stack."""

import pytest

from support.python_processes import check_python, run_python

ENDS = {
    "with idle streams": """
        import tensormem as tm
        streams = [tm.Stream(tm.drivers.host()) for _ in range(3)]
        """,
    "with pending work, which is finished first": """
        import tensormem as tm
        stream = tm.Stream(tm.drivers.host())
        for number in range(1000):
            stream.launch(lambda: None)
        stream.launch(print, "finished")
        """,
    "with live blocks": """
        import tensormem as tm
        from tensormem import mr
        stream = tm.Stream(tm.drivers.host())
        pool = mr.PoolMemoryResource(mr.HostMemoryResource())
        blocks = [pool.allocate(1000, stream) for _ in range(10)]
        keep = [mr.HostMemoryResource().allocate("1MiB", stream), mr.PinnedMemoryResource().allocate(1000)]
        pool.deallocate(blocks.pop(), stream)
        """,
    "with blocks of callbacks": """
        import ctypes
        from tensormem import mr
        kept = {}
        def take(nbytes, stream):
            buffer = ctypes.create_string_buffer(nbytes)
            kept[ctypes.addressof(buffer)] = buffer
            return ctypes.addressof(buffer)
        def give_back(address, nbytes, stream):
            del kept[address]
        leaf = mr.CallbackMemoryResource(take, give_back, alignment=1)
        pool = mr.PoolMemoryResource(leaf)
        blocks = [pool.allocate(100), leaf.allocate(100)]
        """,
    "with blocks of a resource written in Python": """
        from tensormem import mr
        class PassingOn(mr.DeviceMemoryResource):
            def deallocate(self, block, stream=None):
                super().deallocate(block, stream)
        low = PassingOn(mr.HostMemoryResource())
        pool = mr.PoolMemoryResource(low)
        blocks = [low.allocate(100), pool.allocate(100)]
        cycle = [blocks, pool]
        cycle.append(cycle)
        """,
    "with callbacks that watch and retry": """
        from tensormem import mr
        watched = mr.PressureResourceAdaptor(mr.HostMemoryResource(), lambda level, used: None, warn=10, critical=20)
        retrying = mr.FailureCallbackResourceAdaptor(watched, lambda nbytes: False)
        keep = [retrying.allocate(100)]
        """,
    "with observers": """
        from tensormem import mr
        heard = []
        logged = mr.LoggingResourceAdaptor(mr.HostMemoryResource(), sink=heard.append)
        keep = [mr.DebugGuardResourceAdaptor(mr.TrackingResourceAdaptor(logged, capture_stacks=True)).allocate(100)]
        """,
    "with a current resource": """
        from tensormem import mr
        mr.set_current_device_resource(mr.PoolMemoryResource(mr.HostMemoryResource()))
        keep = mr.get_current_device_resource().allocate(100)
        """,
    "while work drops its own stream": """
        import tensormem as tm
        box = [tm.Stream(tm.drivers.host())]
        box[0].launch(box.clear)
        """,
    "while daemon threads allocate": """
        import threading
        from tensormem import mr
        pool = mr.PoolMemoryResource(mr.HostMemoryResource())
        started = threading.Event()
        def churn():
            while True:
                pool.deallocate(pool.allocate(1000))
                started.set()
        threading.Thread(target=churn, daemon=True).start()
        started.wait()
        """,
    "by sys.exit": """
        import sys
        import tensormem as tm
        stream = tm.Stream(tm.drivers.host())
        stream.launch(lambda: None)
        block = tm.mr.HostMemoryResource().allocate(100, stream)
        sys.exit(0)
        """,
    "with reservations and scopes open": """
        import tensormem as tm
        from tensormem import mr
        limited = mr.LimitingResourceAdaptor(mr.HostMemoryResource(), 1000)
        reservation = limited.reserve(500)
        scope = tm.tag("open").__enter__()
        use = mr.use_resource(limited)
        use.__enter__()
        """,
}


@pytest.mark.parametrize("name", ENDS)
def test_the_interpreter_ends_cleanly(name: str) -> None:
    output = check_python(ENDS[name], "-X", "dev", "-W", "error")
    assert ("finished" in output) == ("finished first" in name)


def test_work_that_fails_at_the_end_is_told_and_the_end_is_clean() -> None:
    result = run_python(
        """
        import tensormem as tm
        stream = tm.Stream(tm.drivers.host())
        stream.launch(lambda: 1 / 0)
        """
    )
    assert result.returncode == 0
    assert "ZeroDivisionError" in result.stderr


def test_an_exception_over_a_dropped_block_is_told_on_stderr() -> None:
    result = run_python(
        """
        from tensormem import mr
        class Failing(mr.DeviceMemoryResource):
            def deallocate(self, block, stream=None):
                raise KeyError("lost")
        failing = Failing(mr.HostMemoryResource())
        block = failing.allocate(100)
        del block
        print(failing.bytes_outstanding)
        """
    )
    assert (result.returncode, result.stdout.strip()) == (0, "100")
    assert "KeyError: 'lost'" in result.stderr


def test_work_that_does_not_end_is_named_and_left() -> None:
    result = run_python(
        """
        import os, threading
        os.environ["TENSORMEM_EXIT_TIMEOUT"] = "0"
        import tensormem as tm
        kept = [tm.Stream("main"), tm.Stream("main")]
        kept[0].launch(threading.Event().wait)
        pool = tm.VirtualMemoryPool("64MiB")
        """
    )
    assert result.returncode == 0
    assert "tensormem: <Stream 1 on host:0 (open)> has work that was not done 0 s after" in result.stderr
    assert "Stream 2" not in result.stderr


def test_a_daemon_thread_that_keeps_launching_neither_aborts_the_end_nor_puts_it_off() -> None:
    result = run_python(
        """
        import os, threading
        import tensormem as tm
        stream, started = tm.Stream("main"), threading.Event()
        def launch():
            try:
                while True:
                    stream.launch(started.set)
            except tm.errors.StreamMisuse as error:
                os.write(1, error.what.encode() + b"\\n")
        for _ in range(4):
            threading.Thread(target=launch, daemon=True).start()
        started.wait()
        """
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert set(result.stdout.splitlines()) <= {"the interpreter is ending: a stream takes no new work"}


def test_daemon_threads_in_python_that_native_code_called_do_not_abort_the_end() -> None:
    check_python(
        """
        import threading
        from tensormem import mr
        inside = threading.Event()
        def take(nbytes, stream):
            inside.set()
            while True:
                pass
        leaf = mr.CallbackMemoryResource(take, lambda address, nbytes, stream: None)
        for _ in range(3):
            threading.Thread(target=leaf.allocate, args=(100,), daemon=True).start()
        inside.wait()
        """
    )


def test_a_stream_dropped_with_work_that_does_not_end_can_be_interrupted() -> None:
    result = run_python(
        """
        import os, signal, threading
        os.environ["TENSORMEM_EXIT_TIMEOUT"] = "0"
        import tensormem as tm
        stream = tm.Stream("main")
        stream.launch(threading.Event().wait)
        try:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            del stream
            while True:
                pass
        except KeyboardInterrupt:
            print("heard")
        """
    )
    assert (result.returncode, result.stdout) == (0, "heard\n")
