"""The end of the interpreter with GPUs: no new work, a bounded time for what there is, and memory that goes with it."""

import pytest

from support.python_processes import run_python
from tensormem.testing.gpus import simulated_environment

VENDORS = ["cuda", "rocm"]
MEMORY = """
    import os, threading
    os.environ["TENSORMEM_EXIT_TIMEOUT"] = "0"
    import tensormem as tm
    from tensormem import mr
    driver = tm.drivers.get(os.environ["VENDOR"])
    resources = [
        mr.GpuMemoryResource(driver),
        mr.GpuAsyncMemoryResource(driver),
        mr.PinnedMemoryResource(driver),
        mr.ManagedMemoryResource(driver),
        mr.ElasticMemoryResource(driver, capacity="16MiB", release_threshold=0),
        mr.PoolMemoryResource(mr.GpuMemoryResource(driver)),
    ]
    blocks = [resource.allocate(100_000) for resource in resources]
    tensor = tm.zeros(1000, space=os.environ["VENDOR"])
    pool = tm.VirtualMemoryPool("64MiB", device=driver)
    kept = [pool.allocate(size=100_000), tm.Stream(driver)]
"""


@pytest.fixture(params=VENDORS)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in simulated_environment(2, "256MiB", vendor=request.param).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VENDOR", f"{request.param}:0")  # both vendors' libraries are there
    return str(request.param)


@pytest.mark.usefixtures("machine")
def test_memory_of_every_kind_and_work_that_does_not_end_do_not_keep_the_process() -> None:
    result = run_python(MEMORY + "    kept[1].launch(threading.Event().wait)\n", time_limit=60)
    assert result.returncode == 0, result.stderr
    assert "has work that was not done 0 s after" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.usefixtures("machine")
def test_memory_of_every_kind_goes_with_the_process() -> None:
    result = run_python(MEMORY, time_limit=60)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.usefixtures("machine")
def test_a_gpu_takes_no_new_work_when_the_interpreter_ends() -> None:
    result = run_python(
        """
        import atexit, os

        def late():  # registered first, and so called last
            for name, work in WORK.items():
                try:
                    work()
                except tm.errors.StreamMisuse as error:
                    print(name, error.what)

        atexit.register(late)
        import tensormem as tm
        from tensormem import mr
        driver = tm.drivers.get(os.environ["VENDOR"])
        stream, other = tm.Stream(driver), tm.Stream.default(driver)
        block = mr.GpuMemoryResource(driver).allocate(4096)
        managed = mr.ManagedMemoryResource(driver).allocate(4096)
        ordered = mr.GpuAsyncMemoryResource(driver)
        WORK = {
            "copy": lambda: driver.copy(block.ptr, block.ptr + 2048, 1024, stream),
            "fill": lambda: driver.fill(block.ptr, 1, 1, (64, 1, 1), other),
            "launch": lambda: stream.launch(int),
            "prefetch": lambda: driver.prefetch(managed.ptr, 4096, None, stream),
            "allocate": lambda: ordered.allocate(64, stream),
        }
        """,
        time_limit=60,
    )
    assert (result.returncode, result.stderr) == (0, "")
    refusal = "the interpreter is ending: a stream takes no new work"
    assert result.stdout.splitlines() == [
        f"{name} {refusal}" for name in ("copy", "fill", "launch", "prefetch", "allocate")
    ]


@pytest.mark.usefixtures("machine")
def test_threads_that_keep_giving_a_gpu_work_neither_abort_the_end_nor_put_it_off() -> None:
    result = run_python(
        """
        import os, threading
        import tensormem as tm
        stream, started = tm.Stream(tm.drivers.get(os.environ["VENDOR"])), threading.Event()
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
