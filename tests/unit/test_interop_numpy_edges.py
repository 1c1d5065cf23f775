"""NumPy's allocator hook at its edges: resources written in Python, what is refused, and the end of the process."""

import datetime
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import SupportsIndex

import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name

from tensormem import errors, mr
from tensormem._core import NumpyAllocator, check_numpy_table
from tensormem.interop.numpy import use
from tensormem.streams import StreamLike


@pytest.fixture
def host() -> mr.HostMemoryResource:
    return mr.HostMemoryResource()


class Refusing(mr.DeviceMemoryResource):
    """Raises when told to, and remembers what it saw."""

    def __init__(self, upstream: mr.DeviceMemoryResource) -> None:
        super().__init__(upstream)
        self.refuse = False
        self.freed = 0

    def allocate(
        self,
        nbytes: SupportsIndex | str,
        stream: StreamLike | None = None,
        *,
        alignment: SupportsIndex | None = None,
        tag: str | None = None,
    ) -> mr.DeviceBlock:
        if self.refuse:
            raise LookupError("not today")
        return super().allocate(nbytes, stream, alignment=alignment, tag=tag)

    def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
        self.freed += 1
        super().deallocate(block, stream)


def test_an_exception_of_a_resource_written_in_python_is_a_memory_error_with_its_cause(
    host: mr.HostMemoryResource,
) -> None:
    refusing = Refusing(host)
    with use(refusing) as allocator:
        array = np.empty(10)
        refusing.refuse = True
        with pytest.raises(MemoryError):
            np.empty(10)
        error = allocator.last_error
        assert error is not None and isinstance(error.__cause__, LookupError)
    del array
    assert (refusing.freed, host.bytes_outstanding) == (1, 0)


def test_an_array_freed_while_an_exception_is_on_its_way_does_not_disturb_it(host: mr.HostMemoryResource) -> None:
    refusing = Refusing(host)

    def numbers() -> Iterator[int]:
        yield 1
        raise KeyError("the source is empty")

    # NumPy drops the array it has begun with the exception already set.
    with use(refusing), pytest.raises(KeyError, match="the source is empty"):
        np.fromiter(numbers(), int)
    assert refusing.freed >= 1 and host.bytes_outstanding == 0


# --- What is refused, and the end of the process ---


def test_what_is_no_host_resource_is_refused_at_once() -> None:
    class Remote(mr.HostMemoryResource):
        is_host_accessible = property(lambda self: False)

    with pytest.raises(errors.InvalidArgument, match="cannot touch"):
        use(Remote())
    with pytest.raises(errors.InvalidArgument, match="not str"):
        use("host")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="a tag is text"):
        use(mr.HostMemoryResource(), tag=3)  # type: ignore[arg-type]
    assert get_handler_name() == "default_allocator"


@pytest.mark.parametrize("table", [None, 7, datetime.datetime_CAPI])
def test_a_table_that_is_not_numpys_is_refused(table: object, host: mr.HostMemoryResource) -> None:
    with pytest.raises(errors.NotSupported, match="allocator hook"):
        check_numpy_table(table)
    with pytest.raises(errors.NotSupported, match="allocator hook"):
        NumpyAllocator(host).install(table)


def test_an_allocator_that_was_never_made_or_twice_says_so(host: mr.HostMemoryResource) -> None:
    empty = NumpyAllocator.__new__(NumpyAllocator)
    with pytest.raises(errors.InvalidArgument, match="never made"):
        _ = empty.failures
    made = NumpyAllocator(host)
    with pytest.raises(errors.InvalidArgument, match="exists already"):
        made.__init__(host)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(made)


@pytest.mark.parametrize(
    "source",
    [
        "mr.HostMemoryResource()",
        "mr.PoolMemoryResource(mr.HostMemoryResource())",
        "mr.CallbackMemoryResource(take, give_back)",
        "Forwarding(mr.HostMemoryResource())",
    ],
)
def test_arrays_that_are_alive_when_the_interpreter_ends_do_no_harm(source: str) -> None:
    program = f"""
        import sys
        import threading

        import numpy as np

        from tensormem import mr
        from tensormem.interop.numpy import use

        blocks = {{}}

        def take(nbytes, stream):
            block = mr.HostMemoryResource().allocate(nbytes)
            blocks[block.ptr] = block
            return block.ptr

        def give_back(address, nbytes, stream):
            del blocks[address]

        class Forwarding(mr.DeviceMemoryResource):
            def deallocate(self, block, stream=None):
                super().deallocate(block, stream)

        class Holder:
            pass

        with use({source}) as allocator:
            array = np.arange(1000)
            np.kept_by_a_module = np.arange(10)
            Holder.cycle = Holder
            Holder.array = np.ones(100)
            sys.kept_by_sys = [np.zeros(3), allocator]
            local = threading.local()
            local.array = np.ones(5)
        never_left = use({source})
        never_left.__enter__()
        late = np.ones(7)
        print("done")
    """
    result = subprocess.run(
        [sys.executable, "-W", "error", "-X", "faulthandler", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
    )
    assert (result.stdout, result.stderr, result.returncode) == ("done\n", "", 0)
