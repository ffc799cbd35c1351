"""The tables of docs/deploy/compatibility.md are those of the recorded results."""

from pathlib import Path

from tests.compatibility.results import COLUMNS, KEYS, PAGE, load, page, record


def test_page_has_the_recorded_results():
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, load()) == text, "record rows with: python -m tests.compatibility --write"


def test_each_row_has_what_names_it():
    assert [row for kind, rows in load().items() for row in rows if not {*KEYS[kind]} <= row.keys()] == []


def test_new_row_replaces_the_one_of_its_minor_version(tmp_path: Path):
    file, shown = tmp_path / "results.json", tmp_path / "page.md"
    blocks = "".join(f"<!-- generated: {kind} results -->\n<!-- end of {kind} results -->\n" for kind in COLUMNS)
    shown.write_text(blocks)
    for version in ("3.10.0", "3.9.1", "3.9.2"):
        record("kafka", {"kafka": version, "on": "today", "stream": f"by {version}"}, file, shown)
    assert [row["kafka"] for row in load(file)["kafka"]] == ["3.9.2", "3.10.0"]
    assert "| 3.9.2 | — | by 3.9.2 |" in shown.read_text()
    assert "3.9.1" not in shown.read_text()
