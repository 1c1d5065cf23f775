"""An ordinary NumPy program: pictures are blurred and the sharpest are kept. It knows nothing of tensormem.

tensormem record --stacks -o pictures.tmt -- python pictures.py
"""

import numpy as np
from numpy.typing import NDArray


def load(number: int) -> NDArray[np.float64]:
    return np.random.default_rng(number).random((1024, 1024))


def blur(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = [np.roll(picture, step, axis) for axis in (0, 1) for step in (-1, 0, 1)]
    blurred: NDArray[np.float64] = np.mean(shifted, axis=0)
    return blurred


def sharpest(count: int) -> list[NDArray[np.float64]]:
    kept = []
    for number in range(count):
        picture = load(number)
        edges = np.abs(picture - blur(picture))
        if edges.mean() > 0.1:
            kept.append(edges)
    return kept


if __name__ == "__main__":
    print(f"{len(sharpest(12))} pictures are sharp")
