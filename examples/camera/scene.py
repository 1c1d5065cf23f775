"""Owns: what the synthetic camera sees: a grey wall, and a white square that moves with the number of the frame.

Must not know: rings and processes. The square's place follows from the number, so whoever finds it can check that the
frame is whole and is the one it says.
"""

import re

HEIGHT, WIDTH, CHANNELS = 1080, 1920, 4
SHAPE = (HEIGHT, WIDTH, CHANNELS)
PITCH = WIDTH * CHANNELS
SIDE = 16
WHITE = b"\xff" * (SIDE * CHANNELS)
_WALL = bytes(64 + (x // 32) % 2 for x in range(WIDTH) for _ in range(CHANNELS)) * HEIGHT
_SQUARE = re.compile(re.escape(WHITE))


def place_of(number: int) -> tuple[int, int]:
    """The row and column of the square in frame `number`."""
    return number * 8 % (HEIGHT - SIDE) // SIDE * SIDE, number * 24 % (WIDTH - SIDE)


def paint(pixels: memoryview, number: int) -> None:
    """The whole frame, as a camera would: every byte is written."""
    pixels[:] = _WALL
    row, column = place_of(number)
    for line in range(row, row + SIDE):
        start = line * PITCH + column * CHANNELS
        pixels[start : start + len(WHITE)] = WHITE


def find(pixels: memoryview) -> tuple[int, int] | None:
    """Where the square is, by looking at the pixels."""
    for row in range(0, HEIGHT, SIDE):
        found = _SQUARE.search(pixels[row * PITCH : (row + 1) * PITCH])
        if found is not None:
            return row, found.start() // CHANNELS
    return None


def brightness(pixels: memoryview) -> float:
    """A coarse mean, from a few thousand pixels."""
    some = pixels[:: 4 * 1021]
    return sum(some) / len(some)
