"""Every broker response that the sink relies on is covered by an existing test."""

import re
from pathlib import Path

from spark_eos.sink.protocol.descriptions import EARLIER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol" / "answers.md").read_text()


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_each_row_names_an_existing_test() -> None:
    found = rows("Every answer")
    assert len(found) > 20
    for row in found:
        assert len(row) == 6, row
        named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[-1])
        assert named is not None, row
        assert f"def {named[2]}(" in (ROOT / named[1]).read_text(), row


def test_each_request_sent_by_the_sink_has_a_row() -> None:
    asked = {row[0].split(":")[0].split(" ")[0] for row in rows("Every answer")}
    assert asked == {
        "FindCoordinator",
        "OffsetFetch",
        "DescribeProducers",
        "DescribeTransactions",
        "ListTransactions",
        "InitProducerId",
        "TxnOffsetCommit",
        "EndTxn",
        "Produce",
        "Fetch",
        "Metadata",
        "ListOffsets",
        "ApiVersions",
    }


def test_states_of_the_table_match_the_rule() -> None:
    text = " ".join(" ".join(row) for row in rows("Descriptions of transactions"))
    assert all(state.label in text for state, _ in EARLIER)
