"""Owns: packages of one suite of the distribution's archive, fetched and unpacked without installing anything.

The archive is the one this machine's own apt configuration names; apt checks the signatures. Lists and packages stay in
the cache of the project. Must not know: which packages are wanted.
"""

import shutil
from pathlib import Path

from vm.machine.means import CACHE, MissingMeans, run

KEYRINGS = Path("/usr/share/keyrings")


def release() -> tuple[str, str]:
    """The distribution and the code name of its release, such as ("debian", "bookworm")."""
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        raise MissingMeans("there is no /etc/os-release, so the distribution is unknown") from None
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    return facts.get("ID", "").strip('"'), facts.get("VERSION_CODENAME", "").strip('"')


def own_source(distribution: str, codename: str) -> tuple[str, str]:
    """Where this machine gets the packages of its own release from: an address and components."""
    listed = run("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI) $(COMPONENT)", "Created-By: Packages")
    rows = [line.split() for line in listed.splitlines() if line.startswith(f"{codename} ")]
    if not rows:
        raise MissingMeans(f"apt of this machine has no source for {distribution} {codename}")
    components = sorted({row[2] for row in rows if row[1] == rows[0][1]})
    return rows[0][1], " ".join(components)


class Archive:
    """One suite: `Archive("bookworm-backports").fetch([...], folder)`."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self._home = CACHE / "apt" / suite

    def open(self) -> None:
        """Read the lists of the suite. `MissingMeans` if the archive has no such suite or cannot be reached."""
        distribution, codename = release()
        address, components = own_source(distribution, codename)
        keyring = KEYRINGS / f"{distribution}-archive-keyring.gpg"
        options = f"[signed-by={keyring}] " if keyring.exists() else ""
        for folder in ("lists/partial", "cache/archives/partial"):
            (self._home / folder).mkdir(parents=True, exist_ok=True)
        (self._home / "sources").write_text(f"deb {options}{address} {self.suite} {components}\n", encoding="utf-8")
        self._apt("apt-get", "-q", "update", "-o", "APT::Update::Error-Mode=any")

    def dependency(self, package: str) -> str:
        """The first package that `package` depends on; a kernel's meta package names the kernel this way."""
        for line in self._apt("apt-cache", "depends", "--important", package).splitlines():
            words = line.split()
            if words and words[0] == "Depends:":
                return words[1]
        raise MissingMeans(f"{self.suite} has no package {package}")

    def has(self, package: str) -> bool:
        """Whether the suite has this package."""
        return f"Package: {package}\n" in self._apt("apt-cache", "show", "--no-all-versions", package, check=False)

    def fetch(self, packages: list[str], folder: Path) -> None:
        """Unpack these packages into `folder`, all of them or none."""
        downloads = self._home / "packages"
        shutil.rmtree(downloads, ignore_errors=True)  # what an interrupted run left
        downloads.mkdir(parents=True)
        self._apt("apt-get", "-q", "download", *packages, cwd=downloads)
        for file in sorted(downloads.glob("*.deb")):
            run("dpkg-deb", "-x", file, folder)
        shutil.rmtree(downloads)

    def _apt(self, program: str, *arguments: str, cwd: Path | None = None, check: bool = True) -> str:
        places = {
            "Dir::Etc::sourcelist": self._home / "sources",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": self._home / "lists",
            "Dir::Cache": self._home / "cache",
            "APT::Sandbox::User": "root",  # the cache may be where apt's own user cannot go
        }
        options = [word for name, value in places.items() for word in ("-o", f"{name}={value}")]
        try:
            return run(program, *options, *arguments, cwd=cwd)
        except MissingMeans:
            if check:
                raise
            return ""
