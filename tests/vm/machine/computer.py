"""Owns: one boot of the virtual machine: shares folders with it, runs one job, and tells how it ended.

KVM where it works, else emulation. Must not know: what the job does.
"""

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vm.machine.kernel import Kernel
from vm.machine.means import CACHE, MissingMeans, run
from vm.machine.ramdisk import Share, build_ramdisk

RESULTS = Path("/results")
"""Where the guest sees the folder that the host reads its results from."""

_PROBE_SECONDS = 15.0
_ACCELERATORS = {"kvm": ["-accel", "kvm", "-cpu", "host"], "tcg": ["-accel", "tcg,thread=multi", "-cpu", "max"]}


@dataclass(frozen=True)
class Outcome:
    """How a boot ended: the job's exit code, or None if it never came to its end, and what the console said."""

    exit_code: int | None
    console: str
    accelerator: str


class Computer:
    """A machine of `kernel` that runs jobs, one per boot."""

    def __init__(self, kernel: Kernel, shares: list[Share], links: dict[str, str], memory_mib: int = 1024) -> None:
        self.kernel = kernel
        self.shares = shares
        self.links = links
        self.memory_mib = memory_mib
        found = shutil.which("qemu-system-x86_64")
        if found is None:
            raise MissingMeans("qemu-system-x86_64 is not installed (apt-get install qemu-system-x86)")
        self._program = found

    def boot(self, job: str, results: Path, time_limit: float) -> Outcome:
        """Boot, run the shell script `job`, power off. `results` is writable for it at /results."""
        return self._boot(job, results, time_limit, self._accelerator())

    def _boot(self, job: str, results: Path, time_limit: float, accelerator: str) -> Outcome:
        (results / "job").write_text(job, encoding="utf-8")
        (results / "exit-code").unlink(missing_ok=True)
        shares = [*self.shares, Share(results, RESULTS, writable=True)]
        ramdisk = results / "ramdisk"
        ramdisk.write_bytes(build_ramdisk(self.kernel, shares, self.links))
        command = [*self._command(ramdisk, accelerator), *self._share_options(shares)]
        console = _run_for(command, time_limit)
        ramdisk.unlink()
        code = (results / "exit-code").read_text() if (results / "exit-code").exists() else ""
        return Outcome(int(code) if code.strip() else None, console, accelerator)

    def _command(self, ramdisk: Path, accelerator: str) -> list[str]:
        plain = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]
        # One processor: the kernel changes its own code when it is traced, and emulation does not always notice that on
        # another processor in time.
        size = ["-machine", "q35", "-smp", "1", "-m", f"{self.memory_mib}M"]
        words = "console=ttyS0 quiet panic=-1 mitigations=off rdinit=/init"
        start = ["-kernel", str(self.kernel.image), "-initrd", str(ramdisk), "-append", words]
        return [self._program, *_ACCELERATORS[accelerator], *plain, *size, *start]

    def _share_options(self, shares: list[Share]) -> list[str]:
        options = []
        for number, share in enumerate(shares):
            text = f"local,id=share{number},path={share.folder},security_model=none,multidevs=remap"
            text += "" if share.writable else ",readonly=on"
            options += ["-fsdev", text, "-device", f"virtio-9p-pci,fsdev=share{number},mount_tag=share{number}"]
        return options

    def _accelerator(self) -> str:
        """KVM if a boot with it succeeds, which is tried once and remembered: a /dev/kvm alone proves nothing."""
        note = CACHE / "accelerator"
        key = f"{run(self._program, '--version').splitlines()[0]} {run('uname', '-srvm').strip()}"
        if note.exists() and note.read_text().startswith(f"{key}\n"):
            return note.read_text().splitlines()[1]
        works = False
        if Path("/dev/kvm").exists():
            with tempfile.TemporaryDirectory() as folder:
                works = self._boot("true", Path(folder), _PROBE_SECONDS, "kvm").exit_code == 0
        accelerator = "kvm" if works else "tcg"
        note.write_text(f"{key}\n{accelerator}\n")
        return accelerator


def _run_for(command: list[str], time_limit: float) -> str:
    """What the machine said on its console. One that is still running after `time_limit` is ended."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            output, _ = process.communicate(timeout=time_limit)
            said = ""
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            said = f"\n[ended by the host after {time_limit:.0f} s]"
    return output.decode(errors="replace") + said
