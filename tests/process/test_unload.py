"""The modules of the package, unloaded in any order while objects of them live."""

import subprocess
import sys
import textwrap

import pytest


def run(source: str, *arguments: str) -> tuple[int, str, str]:
    """How a process of its own ended, and what it said."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(source), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("seed", range(6))
def test_modules_go_in_any_order_while_their_objects_live(seed: int) -> None:
    source = """
        import gc, random, sys, threading
        import tensormem as tm
        from tensormem import mr, pools, vmm
        import tensormem.reports.live, tensormem.web, tensormem.testing
        draw = random.Random(int(sys.argv[1]))
        stream = tm.Stream("main")
        stream.launch(int)
        pool = mr.PoolMemoryResource(mr.HostMemoryResource())
        kept = [stream, pool, pool.allocate(1000, stream), tm.zeros(5, memory="shm"), tm.FrameRing(2, 4),
                vmm.GrowableBuffer("1MiB"), pools.VirtualMemoryPool("1MiB", "64KiB"),
                pools.SharedBudget.create("1MiB", name="a"), *tm.Channel.pair(),
                tm.Channel.listen("@unload-" + sys.argv[1] + str(threading.get_native_id()))]
        names = [name for name in sys.modules if name.partition(".")[0] == "tensormem"]
        draw.shuffle(names)
        for name in names:
            del sys.modules[name]
            if draw.random() < 0.1:
                gc.collect()
        draw.shuffle(kept)
        while kept:
            kept.pop()
            gc.collect()
        """
    assert run(source, str(seed)) == (0, "", "")
