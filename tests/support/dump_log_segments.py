"""Apache Kafka's DumpLogSegments, and a parser of its output."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.java_tools import java_tool

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
TRANSACTION_LOG, OFFSETS = "--transaction-log-decoder", "--offsets-decoder"

_FIELD = re.compile(r"(\w+): (\S+)")
_OPTIONAL = re.compile(r"OptionalLong(?:\.empty|\[(-?\d+)\])")
_NO_NUMBER = -1
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp>-?\d+) keySize: -?\d+ valueSize: -?\d+"
    r" sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>.*?)\]"
    r"(?: endTxnMarker: (?P<marker>COMMIT|ABORT) coordinatorEpoch: (?P<epoch>-?\d+))?"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<payload>.*))?"
)


class DumpedRecord(NamedTuple):
    """One record of the output; `marker` is COMMIT or ABORT in a control batch."""

    offset: int
    timestamp_ms: int
    sequence: int
    header_keys: tuple[str, ...]
    marker: str | None
    coordinator_epoch: int | None
    key: str | None
    payload: str | None


@dataclass
class DumpedBatch:
    """One batch: its printed fields by name, and its records."""

    fields: dict[str, str]
    records: list[DumpedRecord] = field(default_factory=list)

    def number(self, name: str) -> int:
        """Return a numeric field."""
        return int(self.fields[name])

    def flag(self, name: str) -> bool:
        """Return a boolean field."""
        return {"true": True, "false": False}[self.fields[name]]


@dataclass
class DumpedFile:
    """The output for one file: batches of a log, or entries of an index or snapshot."""

    name: str
    batches: list[DumpedBatch] = field(default_factory=list)
    entries: list[dict[str, int]] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """Return the name of the partition's folder."""
        return self.name.split("/")[0]

    @property
    def suffix(self) -> str:
        """Return the kind of the file."""
        return Path(self.name).suffix

    @property
    def records(self) -> list[DumpedRecord]:
        """Return the records of all batches."""
        return [record for batch in self.batches for record in batch.records]


class Dump(NamedTuple):
    """The whole output; `complaints` are the lines that the tool never prints for valid files."""

    files: list[DumpedFile]
    complaints: list[str]


def log_files(root: Path, folder: str) -> list[str]:
    """Return the files of one partition that the tool can read, relative to the root."""
    return sorted(f"{folder}/{path.name}" for path in (root / folder).iterdir() if path.suffix in SUFFIXES)


def dump_log_segments(root: Path, names: Iterable[str], *options: str) -> Dump:
    """Dump the files in one run of the tool; raises `Unavailable` if Java, Maven or the jars are missing."""
    paths = ",".join(f"{root}/{name}" for name in names)
    printed = java_tool("DumpLogSegments", "--deep-iteration", "--print-data-log", *options, "--files", paths)
    output, errors = (text.replace(f"{root}/", "") for text in (printed.output, printed.errors))
    files, complaints = _parse(output)
    return Dump(files, complaints + _complaints(errors.splitlines()))


def _complaints(lines: Iterable[str]) -> list[str]:
    """Return the complaints without those that the tool prints for valid files too."""
    found: list[str] = []
    for line in lines:
        gap = re.fullmatch(r"  -1 is followed by (\d+)", line)
        if gap and found and found[-1].endswith(f"/{int(gap[1]):020d}.log"):
            # The tool expects every file to begin at offset 0 and complains about Apache Kafka's own segments as well.
            found.pop()
        elif line and not line.startswith("SLF4J"):
            found.append(line)
    return found


def _parse(text: str) -> tuple[list[DumpedFile], list[str]]:
    files: list[DumpedFile] = []
    complaints = []
    for line in text.splitlines():
        if line.startswith("Dumping "):
            files.append(DumpedFile(line.removeprefix("Dumping ")))
        elif not files or not _take_in(files[-1], line):
            complaints.append(line)
    return files, complaints


def _take_in(file: DumpedFile, line: str) -> bool:
    """Add a line to the file; return False if the line is not of the expected form."""
    if line.startswith("Log starting offset: "):
        return True
    if line == f"{file.name} is empty.":
        return file.suffix == ".index"
    if file.suffix != ".log":
        try:
            file.entries.append({name: _number(value) for name, value in _FIELD.findall(line)})
        except ValueError:
            return False
        return bool(file.entries[-1])
    if line.startswith("baseOffset: "):
        file.batches.append(DumpedBatch(dict(_FIELD.findall(line))))
        return True
    found = _RECORD.fullmatch(line)
    if found is None or not file.batches:
        return False
    part = found.groupdict()
    file.batches[-1].records.append(
        DumpedRecord(
            int(part["offset"]),
            int(part["timestamp"]),
            int(part["sequence"]),
            tuple(name for name in part["headers"].split(",") if name),
            part["marker"],
            None if part["epoch"] is None else int(part["epoch"]),
            part["key"],
            part["payload"],
        )
    )
    return True


def _number(text: str) -> int:
    optional = _OPTIONAL.fullmatch(text)
    if optional is None:
        return int(text)
    return _NO_NUMBER if optional[1] is None else int(optional[1])
