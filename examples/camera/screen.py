"""Owns: the third reader: an OpenGL texture, filled from a pixel buffer. The CPU copies each frame once, into that
buffer; from there it is OpenGL's.

Must not know: the other readers.
"""

import time

import tensormem as tm
from camera import scene
from camera.account import Account
from tensormem.gl import Texture


def show(ring: tm.FrameRing) -> Account:
    """Uploads the latest frame until the camera is done, and checks what the texture has in the end."""
    account = Account("texture")
    buffer = tm.empty(scene.SHAPE, "uint8", memory="pbo", tag="screen")
    number = 0
    with Texture(scene.WIDTH, scene.HEIGHT, "rgba8") as texture:
        start = 0.0
        for frame in ring:
            start = start or time.monotonic()
            account.latencies.append((time.monotonic_ns() - frame.timestamp) / 1000)
            buffer.copy_(frame.tensor)
            account.copies += 1
            texture.upload(buffer)
            number = frame.number
            account.frames += 1
            account.dropped += frame.dropped
        account.seconds = time.monotonic() - start
        shown = texture.download(tm.empty(scene.SHAPE, "uint8"))
        account.wrong += scene.find(memoryview(shown).cast("B")) != scene.place_of(number)
    return account
