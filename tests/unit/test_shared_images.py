"""Images through channels, frame rings and pickles: whole, and refused by name when the other side lies."""

import pickle
import socket
import struct

import pytest

import tensormem as tm
from tensormem import errors
from tensormem._core import describe_tensor
from tensormem.images import ImageLayout
from tensormem.images.description import DESCRIPTION_BYTES, format_description, parse_description

GOOD = ImageLayout.make(6, 4, "nv12", pitch=64)


def _spoiled() -> list[bytes]:
    good = format_description(GOOD)
    fields = [(12, "<I", 0), (8, "<I", 0), (8, "<I", 2**32 - 1), (12, "<I", 2**32 - 1), (16, "<Q", 0), (16, "<Q", 5)]
    numbers = [good[:at] + struct.pack(form, value) + good[at + struct.calcsize(form) :] for at, form, value in fields]
    names = [good[:24] + name.ljust(16, b"\0") + good[40:] for name in (b"", b"nv13", b"\xff\xfe", b"NV12" * 4)]
    return [*numbers, *names, good[:6] + b"\1" + good[7:], good[:-1] + b"\1", good[:-1], good + b"\0", b""]


@pytest.mark.parametrize("name", ["rgb", "rgba", "bgra", "grey", "grey16", "yuyv", "nv12", "nv16", "planar_rgb"])
def test_a_description_says_the_whole_layout(name: str) -> None:
    layout = ImageLayout.make(6, 4, name, pitch_alignment=64)
    assert len(format_description(layout)) == DESCRIPTION_BYTES
    assert parse_description(format_description(layout)) == layout


@pytest.mark.parametrize("data", _spoiled())
def test_a_description_that_cannot_be_right_is_refused(data: bytes) -> None:
    with pytest.raises(errors.MalformedMessage):
        parse_description(data)


def test_a_description_of_another_version_is_named() -> None:
    good = format_description(GOOD)
    with pytest.raises(errors.VersionSkew):
        parse_description(good[:4] + b"\2\0" + good[6:])


@pytest.mark.parametrize("name", ["rgb", "nv12", "planar_rgb", "grey16"])
@pytest.mark.parametrize("readonly", [False, True])
def test_an_image_goes_through_a_channel_whole(name: str, readonly: bool) -> None:
    here, there = tm.Channel.pair()
    with here, there:
        sent = tm.image(6, 4, name, memory="shm", pitch=64)
        sent.planes[0].fill_(7)
        here.send(sent, readonly=readonly)
        came = there.receive_image(timeout=5)
        assert came.layout == sent.layout
        assert [plane.tolist() for plane in came.planes] == [plane.tolist() for plane in sent.planes]
        assert came.data.readonly is readonly and came.data.aliases(sent.data)


def test_what_is_no_image_is_refused_where_one_was_asked_for_and_the_other_way_round() -> None:
    here, there = tm.Channel.pair()
    with here, there, tm.FrameRing(2, 4) as ring:
        here.send(tm.zeros(4, memory="shm"))
        with pytest.raises(errors.MalformedMessage, match="a tensor came where an image"):
            there.receive_image(timeout=5)
        here.send(tm.image(6, 4, "rgb", memory="shm"))
        with pytest.raises(errors.MalformedMessage, match="an image came where a tensor"):
            there.receive(timeout=5)
        here.send(ring)
        with pytest.raises(errors.MalformedMessage, match="a frame ring came where an image"):
            there.receive_image(timeout=5)
        with pytest.raises(errors.InvalidArgument, match="tensors, images and frame rings"):
            here.send("picture")  # type: ignore[arg-type]


@pytest.mark.parametrize("description", [*_spoiled()[:10], format_description(ImageLayout.make(4096, 4096, "rgb"))])
def test_a_peer_that_lies_about_an_image_is_refused(description: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    memory = tm.zeros(4096, "uint8", memory="shm")
    fd = memory.clone_fd()
    with tm.Channel(ours) as channel, theirs, open(fd, "rb"):
        socket.send_fds(theirs, [description + describe_tensor(memory, False)], [fd])
        with pytest.raises(errors.MalformedMessage):
            channel.receive_image(timeout=5)


def test_frames_carry_images_and_each_its_own() -> None:
    with tm.FrameRing.for_images(3, 64, 48, "rgb", mode="every") as ring:
        for name, width, pitch in (("rgb", 64, None), ("nv12", 32, 64), ("grey", 10, 16)):
            with ring.write() as frame:
                frame.image(width, 48, name, pitch=pitch).planes[0].fill_(width)
            with ring.read(timeout=5) as seen:
                image = seen.image
                assert (str(image.format), image.width, image.pitch) == (name, width, pitch or width * 3)
                assert image.data.readonly
                assert image.copy_to_flat().tolist()[0] == width


def test_a_frame_without_a_sound_description_is_refused() -> None:
    with tm.FrameRing.for_images(3, 8, 8, "grey", mode="every") as ring:
        for description in _spoiled()[:10]:
            with ring.write() as frame, frame.tensor.map("w") as mapped:
                memoryview(mapped)[-DESCRIPTION_BYTES:] = description
            with ring.read(timeout=5) as seen, pytest.raises(errors.MalformedMessage):
                seen.image  # noqa: B018
        with ring.write() as frame, pytest.raises(errors.InsufficientCapacity):
            frame.image(9, 9, "grey")
    refused = pytest.raises(errors.InvalidArgument, match="for_images")
    with tm.FrameRing(2, (4, 4), "float32") as plain, plain.write() as frame, refused:
        frame.image(1, 1, "grey")


def test_an_image_is_pickled_whole() -> None:
    image = tm.image(6, 4, "nv12", pitch=64)
    image.planes[1].fill_(9)
    again = pickle.loads(pickle.dumps(image))
    assert again.layout == image.layout and again.planes[1].tolist() == image.planes[1].tolist()
