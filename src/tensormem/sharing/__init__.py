"""Owns: memory on its way between processes: channels that carry tensors, and rings of frames.

Must not know: where shared memory comes from (memories), and what is done with it.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.sharing.channel import Channel, ChannelListener
from tensormem.sharing.frame import Frame, WritableFrame
from tensormem.sharing.frame_ring import FrameReader, FrameRing
from tensormem.sharing.travel import install
from tensormem.sharing.ways import ReadMode, WhenFull

__all__ = ["Channel", "ChannelListener", "Frame", "FrameReader", "FrameRing", "ReadMode", "WhenFull", "WritableFrame"]

install()

explain_misspellings(globals())
