"""What may grow while a query runs: samples of it, and the verdict on a series of samples."""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import Process

# A kind may grow by this factor and its slack, from the first third of its samples to the last.
MOST_TIMES = 1.1
_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)

Sample = Mapping[str, float]


@dataclass(frozen=True)
class Kind:
    """One thing that is measured: its name with its unit, and by how much it may rise without being called growth."""

    name: str
    slack: float


# Full collections leave what lives; pages of Python's processes come and go in arenas of a MiB.
HEAP, PYTHON, LARGEST = Kind("driver, heap, MiB", 16), Kind("Python, all, MiB", 64), Kind("Python, largest, MiB", 16)
BROKER = Kind("broker, MiB", 16)
SOCKETS, BROKER_SOCKETS = Kind("sockets of Python workers", 8), Kind("sockets of the broker", 8)
# Not judged: PySpark leaves a socket for each start of a source in Python, and some for each worker that is killed.
SPARKS_SOCKETS = Kind("sockets of Spark's driver", math.inf)
IDS = Kind("transactional ids", 4)
# A segment that is not closed yet, and the files of the last hundred micro-batches, which Spark keeps.
DECISIONS, CHECKPOINT = Kind("decision topic, KiB", 128), Kind("checkpoint, KiB", 256)
KINDS = (HEAP, PYTHON, LARGEST, BROKER, SOCKETS, SPARKS_SOCKETS, BROKER_SOCKETS, IDS, DECISIONS, CHECKPOINT)


def grown(samples: Sequence[Sample], kinds: Iterable[Kind] = KINDS) -> list[str]:
    """Return what has grown over the samples, none if all is flat; fewer than three samples show nothing.

    A third is compared by its median: one sample may be taken in the middle of something.
    """
    found = []
    for kind in kinds:
        values = [sample[kind.name] for sample in samples if kind.name in sample]
        third = len(values) // 3
        if not third:
            continue
        first, last = statistics.median(values[:third]), statistics.median(values[-third:])
        if last > MOST_TIMES * first + kind.slack:
            found.append(f"{kind.name} grew from {first:,.0f} to {last:,.0f}")
    return found


def table(samples: Sequence[Sample], kinds: Iterable[Kind] = KINDS) -> str:
    """Return the first, the least, the median, the most and the last of each kind, as a Markdown table."""
    lines = ["| what | first | least | median | most | last |", "|---|---|---|---|---|---|"]
    for kind in kinds:
        values = [sample[kind.name] for sample in samples if kind.name in sample]
        if values:
            shown = (values[0], min(values), statistics.median(values), max(values), values[-1])
            lines.append(f"| {kind.name} | " + " | ".join(f"{value:,.0f}" for value in shown) + " |")
    return "\n".join(lines)


def memory_mib(processes: Iterable[Process]) -> list[float]:
    """Return the memory of each process; pages that several share count for each of them in part (Pss)."""
    found = []
    for process in processes:
        with suppress(OSError):
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            found.append(sum(map(int, _PSS.findall(text))) / 1024)
    return found


def sockets(processes: Iterable[Process]) -> int:
    """Count the open sockets of processes; one that two processes share counts twice."""
    count = 0
    for process in processes:
        with suppress(OSError):
            for path in Path(f"/proc/{process.pid}/fd").iterdir():
                with suppress(OSError):
                    count += str(path.readlink()).startswith("socket:")
    return count


def size_kib(folder: Path, pattern: str = "*") -> float:
    """Return the size of the files under a folder, which may be deleted meanwhile."""
    size = 0
    for path in folder.rglob(pattern):
        with suppress(OSError):
            size += path.stat().st_size if path.is_file() else 0
    return size / 1024
