"""Owns: the plain words for what GPU drivers answer, and what to do about it.

The names and short texts are the driver's own; these are ours. Must not know: which call it was.
"""

from tensormem import errors
from tensormem._core import GpuPlatform

# Which numbers a native failure speaks in; the second fact of a DriverError.
_NUMBERS = {"cuda": 1, "rocm": 2}

# Both vendors use the same numbers for these.
_MEANINGS = {
    1: "an argument is out of range, or an address is not what the call needs",
    2: "the device or the host has not enough memory",
    3: "the driver is not initialised in this process; a child of a fork must be started with spawn instead",
    4: "the driver is shutting down",
    100: "there is no device",
    101: "there is no device of this number",
    201: "no context is current, or it is not valid",
    304: "a system call inside the driver failed",
    400: "a stream, event or handle is not valid: destroyed, or of another context",
    700: "work on the device touched memory that it must not; nothing works any more until the process starts anew",
    704: "peer access is enabled already",
    709: "the context was destroyed under us, by a reset of the device",
    712: "the memory is registered already",
    713: "the memory is not registered",
    719: "work on the device failed; nothing works any more until the process starts anew",
    800: "not permitted here: host functions on a stream must not call the driver",
    801: "this device or driver cannot do it",
    900: "not permitted while a stream is being captured into a graph",
    901: "the capture of a stream into a graph was made invalid by an earlier call; end it and begin again",
    902: "two captures of streams would become one",
    903: "the capture did not begin on this stream",
    904: "work of another stream belongs to the capture and was not joined to it before its end",
    905: "captured work would wait for work outside of the capture",
    906: "the legacy default stream would wait for a stream that is being captured; use streams that do not block it",
    907: "the event was recorded in a capture: it marks a place in the graph and never passes",
    908: "the capture was begun by another thread, which has to end it",
    999: "an unknown failure; the device may be lost",
}
_ADVICE = (
    ("_LIBRARY names", "Name the vendor's own library there, or unset the variable"),
    ("cannot be opened", "Install the vendor's driver, or test with tensormem.testing.simulated_gpu()"),
    ("finds no device", "Check that a GPU is there and visible, or test with tensormem.testing.simulated_gpu()"),
    ("or newer is needed", "Update the vendor's driver"),
    ("older than", "Update the vendor's driver"),
    ("has no ", "Update the vendor's driver"),
)


def register(vendor: str, platform: GpuPlatform) -> None:
    """Let failures of `vendor`'s driver be explained in its own words and ours."""

    def explain(code: int, call: str) -> tuple[str, str, str, str]:
        name, text = platform.explain(code)
        return name or "an unknown code", _MEANINGS.get(code, text or "no explanation"), call, vendor

    errors.register_vendor(_NUMBERS[vendor], explain)


def advice(reason: str) -> str:
    """What to do when a driver is not there for `reason`."""
    return next((text for part, text in _ADVICE if part in reason), "`tensormem doctor` tells what this machine has")
