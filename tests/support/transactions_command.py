"""Run Apache's own TransactionsCommand and ours beside it, and compare what they print to the byte."""

import contextlib
import io
from typing import NamedTuple

from spark_eos.admin.command import main
from tests.support.java_tools import java_tool

# What is another number a moment later, and what Java's hash sets put in an order of their own.
_MOVING = frozenset({"TransactionDurationMs", "Duration(min)"})
_SETS = frozenset({"TopicPartitions"})


class Ran(NamedTuple):
    """Hold how a command of ours ended and what it printed."""

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
    """Run Apache's tool and return what it printed; raises `Unavailable` where it cannot be had."""
    return java_tool("TransactionsCommand", "--bootstrap-server", address, *words).output


def settled(table: str) -> list[str]:
    """Return a table's lines with moving numbers blotted out and sets and rows put in order; widths stay."""
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
    """Take a table apart."""
    head, *lines = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines()]
    return [dict(zip(head, line, strict=True)) for line in lines]
