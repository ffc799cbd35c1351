"""The outputs on the pages for operators match those of the commands."""

from tests.support.runbook import comparable, outputs, shown_outputs


def test_runbook_pages_show_the_output_of_the_commands() -> None:
    printed = outputs()
    shown = list(shown_outputs())
    assert {name for _, name, _ in shown} == printed.keys()
    old = [f"{page.name}: {name}" for page, name, text in shown if comparable(text) != comparable(printed[name])]
    assert not old, "run `python -m tests.support.runbook`, which rewrites these outputs"
