"""Images between processes: by `multiprocessing`, over a channel, and in the frames of a ring."""

import multiprocessing

import tensormem as tm


def _answer(image: tm.Image, channel: tm.Channel, ring: tm.FrameRing) -> None:
    facts = tm.image(8, 2, "grey", memory="shm")
    text = f"{image.format} {image.pitch}".encode().ljust(16)
    with facts.data.map("w") as mapped:
        memoryview(mapped)[:] = text
    image.planes[0].fill_(5)
    received = channel.receive_image(timeout=30)
    received.planes[1].fill_(6)
    with ring.write() as frame:
        frame.image(4, 4, "nv12", pitch=64).planes[1].fill_(8)
    channel.send(facts)


def test_a_child_gets_images_and_gives_images_back() -> None:
    image = tm.image(6, 4, "nv12", memory="shm", pitch=64)
    here, there = tm.Channel.pair()
    with here, tm.FrameRing.for_images(2, 4, 4, "nv12", pitch=64) as ring:
        child = multiprocessing.get_context("spawn").Process(target=_answer, args=(image, there, ring))
        child.start()
        there.close()
        here.send(image)
        facts = here.receive_image(timeout=30)
        child.join(30)
        assert child.exitcode == 0
        assert bytes(facts.data).split() == [b"nv12", b"64"]
        assert {number for row in image.planes[0].tolist() for number in row} == {5}
        assert {n for row in image.planes[1].tolist() for pair in row for n in pair} == {6}
        with ring.read(timeout=5) as frame:
            assert (frame.image.pitch, frame.image.planes[1].tolist()[0][0]) == (64, [8, 8])
