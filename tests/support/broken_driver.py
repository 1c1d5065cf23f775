"""Owns: drivers and processes that are broken on purpose, for children that a test starts: by their environment alone.

A `sitecustomize` in the child makes plans of the simulated GPU; what the simulated GPU does not plan (a call that holds
the GIL, one that does nothing, one that crashes) is a library of a few lines of C before it, named by
`TENSORMEM_CUDA_LIBRARY`.
"""

import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tensormem.drivers import simulator

_PLAN = """
import ctypes, os
library = ctypes.CDLL({library!r})
why = ctypes.create_string_buffer(256)
if os.environ.get("TENSORMEM_SIMGPU"):
    library.tensormem_simgpu_open(os.environ["TENSORMEM_SIMGPU"].encode(), why, ctypes.c_size_t(256))
{lines}
"""
_COUNT = """
import atexit, json, sys

def save():
    core = sys.modules.get("tensormem.drivers.registry")
    opened = core._open.get({vendor!r}) if core else None
    if opened is not None:
        library.tensormem_simgpu_calls.restype = ctypes.c_uint64
        calls = {{name: library.tensormem_simgpu_calls(name.encode()) for name in opened.functions}}
        path = {folder!r} + f"/calls-{{os.getpid()}}.json"
        with open(path + ".part", "w") as file:
            json.dump(calls, file)
        os.replace(path + ".part", path)  # a child that is ended meanwhile leaves no half of a file

atexit.register(save)
"""

# Every function of the library behind it, found by name; a few of them otherwise.
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
typedef int (*Find)(const char*, void**, int, unsigned long, int*);
typedef int (*Any)(long, long, long, long, long, long);
int tensormem_simgpu_is_open(void) {{ return 1; }}
static void* library(void) {{
  static void* found = 0;
  if (!found) found = dlopen("{library}", RTLD_NOW | RTLD_LOCAL);
  return found;
}}
int cuInit(unsigned flags) {{ return ((int (*)(unsigned))dlsym(library(), "cuInit"))(flags); }}
static Any behind[16];
static const char* const names[] = {{ {names} 0 }};
{functions}
static const Any instead[] = {{ {instead} 0 }};
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long flags, int* status) {{
  int answer = ((Find)dlsym(library(), "cuGetProcAddress_v2"))(name, function, version, flags, status);
  for (int i = 0; names[i]; ++i) {{
    if (strcmp(names[i], name) == 0 && answer == 0 && *function) {{
      behind[i] = (Any)*function;
      *function = (void*)instead[i];
    }}
  }}
  return answer;
}}
"""
_BODIES = {
    "gil": """
  int state = ((int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure"))();
  int answer = behind[{index}](a, b, c, d, e, f);
  ((void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release"))(state);
  return answer;""",
    "nothing": "  if ({index} < 0) behind[0](a, b, c, d, e, f); return 0;",
    "crash": "  *(volatile int*)8 = 1; return 0;",
    "fail": "  return 901;",
    # A copy between two devices that names neither, in a library that asks for no grant.
    "plain": """
  if (!strcmp(names[{index}], "cuDeviceCanAccessPeer")) {{ *(int*)a = 0; return 0; }}
  return ((int (*)(long, long, long, long))dlsym(library(), "cuMemcpyAsync"))(a, c, e, f);""",
}
_EXPORT = "int {name}(long a, long b, long c, long d, long e, long f) {{ return f{index}(a, b, c, d, e, f); }}"


def break_driver(folder: Path, **plan: str) -> dict[str, str]:
    """Variables for children whose CUDA driver is broken in a function, or in several that are parted by spaces.

    It hangs there (`delay`), holds the GIL (`gil`), does `nothing`, has a `crash`, answers that it must `fail`, or
    makes a `plain` copy of one between two devices.
    """
    ((how, functions),) = plan.items()
    if how == "delay":
        return _site(folder, _plan("cuda", f'library.tensormem_simgpu_delay(b"{functions}", ctypes.c_uint64(10**13))'))
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to build a broken driver with")
    return {"TENSORMEM_CUDA_LIBRARY": _build(folder, how, functions.split())}


def break_library(folder: Path, lines: str) -> dict[str, str]:
    """Variables for children in which tensormem itself is broken by these lines of Python."""
    return _site(folder, textwrap.dedent(lines))


def count_in_driver(folder: Path, vendor: str) -> dict[str, str]:
    """Variables for children that leave what the simulated driver itself counted in `folder`, one file each."""
    return _site(folder, _plan(vendor, _COUNT.format(vendor=vendor, folder=str(folder))))


def hide_pytest(folder: Path) -> dict[str, str]:
    """Variables for children in which pytest cannot be imported."""
    return _site(folder, "import sys\nsys.modules['pytest'] = None\n")


def _plan(vendor: str, lines: str) -> str:
    return _PLAN.format(library=simulator.library_path(vendor), lines=lines)


def _site(folder: Path, text: str) -> dict[str, str]:
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": str(site)}


def _build(folder: Path, how: str, functions: list[str]) -> str:
    bodies = "\n".join(
        f"static int f{index}(long a, long b, long c, long d, long e, long f) {{{_BODIES[how].format(index=index)}\n}}"
        for index in range(len(functions))
    )
    if how == "fail":  # also for those who find functions by symbol
        bodies += "\n" + "\n".join(_EXPORT.format(name=name, index=index) for index, name in enumerate(functions))
    behind = simulator.library_path("cuda")
    source = folder / "broken.c"
    source.write_text(
        _SOURCE.format(
            library=behind,
            functions=bodies,
            names="".join(f'"{name}", ' for name in functions),
            instead="".join(f"f{index}, " for index in range(len(functions))),
        )
    )
    library = folder / "libbroken.so"
    (folder / "tensormem-simgpu-libcuda.so.1").symlink_to(behind)  # the name that it has for the loader
    linked = ["-Wl,--no-as-needed", behind, f"-Wl,-rpath,{folder}"]
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", str(library), str(source), *linked, "-ldl"], check=True)
    return str(library)
