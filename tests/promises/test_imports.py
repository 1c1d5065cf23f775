"""`import tensormem` needs the standard library alone, and names load when they are used."""

import subprocess
import sys

LIST_FOREIGN = """
import sys
before = set(sys.modules)
import tensormem as tm
early = sorted(name for name in sys.modules if name.startswith("tensormem."))
for name in tm.__all__:
    getattr(tm, name)
tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource()).allocate(64)
ours = set(sys.modules) - before
foreign = {name.partition(".")[0] for name in ours} - set(sys.stdlib_module_names) - {"tensormem"}
# Not packages: what compiled modules share among themselves.
foreign = {name for name in foreign if name != "cython_runtime" and not name.startswith("_cython_")}
print(early, sorted(foreign))
"""


def test_the_package_imports_nothing_but_the_standard_library_and_loads_its_parts_when_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", LIST_FOREIGN], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]
