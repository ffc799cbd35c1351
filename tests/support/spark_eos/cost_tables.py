"""The tables of docs/contributing/benchmarks.md."""

from pathlib import Path
from typing import Final

PAGE: Final = (Path(__file__).parents[3] / "docs" / "contributing" / "benchmarks.md").read_text()


def table(heading: str, tasks: int) -> dict[str, int]:
    """Read a table of the page: the requests, and their number by number of tasks."""
    section = PAGE.split(f"### {heading}\n")[1].split("\n##")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {name: eval(count, {"n": tasks}) for name, count, *_ in cells[2:]}
