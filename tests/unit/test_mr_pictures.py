"""How stacks look: printed, in a notebook, and in an error."""

import html.parser
import pickle

import pytest

import tensormem as tm
from tensormem import mr
from tensormem.drivers import host


class PassingOn(mr.DeviceMemoryResource):
    """Changes nothing."""


def test_a_printed_stack_is_a_chain_from_top_to_leaf() -> None:
    stack = mr.StatisticsResourceAdaptor(
        mr.LimitingResourceAdaptor(PassingOn(mr.PoolMemoryResource(mr.HostMemoryResource(), "1MiB")), "2MiB")
    )
    block = stack.allocate("512KiB")
    assert str(stack).splitlines() == [
        "StatisticsResourceAdaptor: 1 blocks, 512 KiB, peak 512 KiB",
        "`- LimitingResourceAdaptor: 512 KiB of 2 MiB used",
        "   `- PassingOn",
        "      `- PoolMemoryResource: 512 KiB of 1 MiB in use",
        "         `- HostMemoryResource",
    ]
    stack.deallocate(block)


def test_a_notebook_gets_the_same_chain_with_nothing_to_execute() -> None:
    class Odd(mr.DeviceMemoryResource):
        def describe(self) -> str:
            return "<script>alert(1)</script> & more"

    class Reader(html.parser.HTMLParser):
        tags: list[str]
        text: str

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.tags.append(tag)

        def handle_data(self, data: str) -> None:
            self.text += data

    stack = Odd(mr.HostMemoryResource())
    reader = Reader()
    reader.tags, reader.text = [], ""
    reader.feed(stack._repr_html_())
    assert "script" not in reader.tags
    assert str(stack) in reader.text


def test_a_repr_is_one_line_with_the_device() -> None:
    assert repr(mr.HostMemoryResource()) == "<HostMemoryResource on host:0>"
    limited = mr.LimitingResourceAdaptor(mr.HostMemoryResource(), 1024)
    assert repr(limited) == "<LimitingResourceAdaptor: 0 B of 1 KiB used on host:0>"


@pytest.mark.parametrize(
    "thing",
    [
        mr.HostMemoryResource(),
        mr.PoolMemoryResource(mr.HostMemoryResource()),
        PassingOn(mr.HostMemoryResource()),
        mr.HostMemoryResource().allocate(1),
        mr.LimitingResourceAdaptor(mr.HostMemoryResource(), 10).reserve(5),
        tm.Event(host()),
        tm.Stream.default(host()),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_what_belongs_to_its_process_says_so_when_pickled(thing: object) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing, protocol)


def test_a_driver_is_found_again_on_the_other_side() -> None:
    assert pickle.loads(pickle.dumps(host())) is host()


def test_the_properties_of_memory_are_those_of_the_leaf() -> None:
    stack = mr.StatisticsResourceAdaptor(PassingOn(mr.PoolMemoryResource(mr.HostMemoryResource())))
    assert (stack.is_host_accessible, stack.is_device_accessible, stack.is_managed) == (True, False, False)
    assert (stack.device_ordinal, stack.device_id, stack.driver) == (0, 0, host())
    assert isinstance(stack.upstream_mr, PassingOn)
    assert mr.HostMemoryResource().upstream_mr is None
