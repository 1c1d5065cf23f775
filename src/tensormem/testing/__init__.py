"""Owns: what tensormem ships for other people's tests: conformance suites to subclass, planned faults, simulated GPUs.

The suites need pytest. Must not be imported by anything but tests.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.testing.gpus import SimulatedGpu, simulated_gpu

__all__ = ["SimulatedGpu", "simulated_gpu"]

explain_misspellings(globals())
