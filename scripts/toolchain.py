"""Says before anything is compiled what a build would lack, in one sentence and with what to do about it.

Owns: what a build needs of this machine, where compiled objects are kept for the next one, and which words of pip mean
that there is no network.
Must not know: how the build is run. Standard library only, because it runs before anything is installed.
"""

import os
import shlex
import shutil
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_NO_NETWORK = (
    "Failed to establish a new connection",
    "Name or service not known",
    "Network is unreachable",
    "Temporary failure in name resolution",
    "NewConnectionError",
    "ProxyError",
    "ConnectTimeoutError",
)


def compiler_cache() -> dict[str, str]:
    """Variables for a build: what was compiled is kept in the project's folder where ccache is installed."""
    if shutil.which("ccache") is None:
        return {}
    compilers = {} if "CXX" in os.environ else {"CXX": "ccache c++", "CC": "ccache cc"}
    return {
        "CCACHE_DIR": os.environ.get("CCACHE_DIR", str(ROOT / ".cache" / "ccache")),
        # Precompiled headers are told apart by what is in them.
        "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime",
        **compilers,
    }


def what_is_missing() -> str | None:
    """Why nothing can be compiled here, or None."""
    return _compiler() or _headers()


def _compiler() -> str | None:
    named = os.environ.get("CXX")
    if named:
        found = all(shutil.which(word) for word in shlex.split(named)[:1])
        return None if found else f"CXX={named} is not a program on this machine. Name a C++ compiler, or unset CXX."
    if any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        return None
    return (
        "No C++ compiler was found. Install one (on Debian, as root: apt-get install g++), "
        "or name it: make CXX=/path/to/compiler"
    )


def _headers() -> str | None:
    folder = Path(sysconfig.get_path("include"))
    if (folder / "Python.h").is_file():
        return None
    version = sysconfig.get_python_version()
    return (
        f"The headers of Python {version} are missing ({folder}/Python.h). Install them (on Debian, as root: "
        f"apt-get install python{version}-dev), or name a Python that has them: make PYTHON=/path/to/python3"
    )


def why_it_failed(said: str) -> str | None:
    """What a failed step means in one sentence, where its own words are long."""
    if any(words in said for words in _NO_NETWORK):
        return (
            "Packages could not be fetched: there is no way to pip's index from here. Connect this machine, or name an "
            "index that it reaches (PIP_INDEX_URL, PIP_FIND_LINKS); the same command goes on from here."
        )
    if "No space left on device" in said:
        return "The disk is full. Make room (a build needs 1 GB); the same command goes on from here."
    return None
