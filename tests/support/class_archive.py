"""Archives of the classes that JVMs load: with one, a JVM needs half the processor time to start.

An archive belongs to one Java and one folder of jars. A JVM without one, or with one that does not fit, reads the same
classes from the jars.
"""

import hashlib
from functools import cache
from pathlib import Path

from tests.support.java import java_command, temporary_files

CACHE = Path(__file__).parents[2] / ".cache"
# A JVM says nothing about an archive that does not fit.
_NO_WARNINGS = "-Xlog:cds*=off"


@cache
def archive_of(jars: Path, folder: Path = CACHE) -> Path | None:
    """Return where in the folder the archive of this Java and these jars is or will be, or None without Java."""
    java = java_command()
    if java is None:
        return None
    program = Path(java).resolve()
    times = [path.stat().st_mtime_ns for path in (program, jars)]
    digest = hashlib.sha256(f"{program} {jars} {times}".encode()).hexdigest()[:8]
    return folder / f"{jars.name}-{digest}.jsa"


def using(archive: Path | None) -> list[str]:
    """Return the options with which a JVM uses the archive, if it exists."""
    return [f"-XX:SharedArchiveFile={archive}", _NO_WARNINGS] if archive is not None and archive.exists() else []


def writing(archive: Path) -> list[str]:
    """Return the options with which a JVM writes what `keep` makes the archive, when the JVM ends."""
    return [f"-XX:ArchiveClassesAtExit={_fresh(archive)}", _NO_WARNINGS]


def keep(archive: Path, jars: Path) -> None:
    """Let later JVMs use what a JVM has written, in place of the archives of other versions of Java."""
    for old in archive.parent.glob(f"{jars.name}-*.jsa"):
        old.unlink()
    _fresh(archive).rename(archive)


def _fresh(archive: Path) -> Path:
    return archive.with_suffix(".fresh")


def java_with(jars: Path, *options: str) -> list[str]:
    """Return the command of a JVM with these jars and their archive, if there is one, up to the name of its program."""
    return [str(java_command()), temporary_files(), *options, *using(archive_of(jars)), "-cp", str(jars / "*")]
