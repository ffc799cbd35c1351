"""A byte-by-byte comparison of the output of Apache Kafka's TransactionsCommand and of `eos-kafka transactions`."""

import contextlib
import io
import shlex
from typing import NamedTuple

from spark_eos.admin.command import main
from spark_eos.admin.output import ExitCode
from tests.support.java_tools import java_tool

# Numbers that change between two calls, and values in the order of Java's hash sets.
_MOVING = frozenset({"TransactionDurationMs", "Duration(min)"})
_SETS = frozenset({"TopicPartitions"})


class Ran(NamedTuple):
    """The exit code and output of `eos-kafka`."""

    code: int
    output: str
    errors: str


def ours(address: str, *words: str) -> Ran:
    """Run `eos-kafka transactions`."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(["transactions", "--bootstrap-server", address, *words])
    return Ran(code, output.getvalue(), errors.getvalue())


def apaches(address: str, *words: str) -> str:
    """Run Apache Kafka's tool and return its output; raises `Unavailable` if it cannot run."""
    return java_tool("TransactionsCommand", "--bootstrap-server", address, *words).output


def settled(table: str) -> list[str]:
    """Return a table's lines with changing numbers masked, and sets and rows sorted; widths stay."""
    head, *rows = table.split("\n")
    names = [cell.strip() for cell in head.split("\t")]
    return [
        head,
        *sorted(
            "\t".join(_settled(name, cell) for name, cell in zip(names, row.split("\t"), strict=True)) if row else row
            for row in rows
        ),
    ]


def _settled(name: str, cell: str) -> str:
    if name in _MOVING and cell.strip() != "None":
        return "#" * len(cell)
    if name in _SETS:
        return ",".join(sorted(cell.strip().split(","))).ljust(len(cell))
    return cell


def rows(table: str) -> list[dict[str, str]]:
    """Parse a table."""
    head, *lines = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines()]
    return [dict(zip(head, line, strict=True)) for line in lines]


def run_printed(command: str) -> None:
    """Run the command that a message suggests, and confirm its plan."""
    program, area, flag, address, *words = shlex.split(command)
    assert (program, area, flag) == ("eos-kafka", "transactions", "--bootstrap-server")
    ran = ours(address, *words, "--yes")
    assert (ran.code, ran.output) == (ExitCode.DONE, ""), ran.errors
