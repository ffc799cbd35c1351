"""Results of checks are kept by texts and by the version of the check."""

from pathlib import Path
from types import ModuleType

from tests.support.remembered import remembered

CHECK = """
calls = []

def lines(*texts):
    calls.append(texts)
    return [text.count(MARK) for text in texts]
"""


def imported(folder: Path, source: str) -> ModuleType:
    path = folder / "check.py"
    path.write_text(source)
    module = ModuleType("check")
    exec(compile(source, path, "exec"), vars(module))
    return module


def test_a_result_is_found_again_by_another_process(tmp_path: Path) -> None:
    for calls in ([("a-b", "c")], []):
        module = imported(tmp_path, CHECK.replace("MARK", "'-'"))
        kept = remembered(module.lines, path=tmp_path / "kept")
        assert kept("a-b", "c") == kept("a-b", "c") == [1, 0]
        assert module.calls == calls


def test_other_texts_have_results_of_their_own(tmp_path: Path) -> None:
    module = imported(tmp_path, CHECK.replace("MARK", "'-'"))
    kept = remembered(module.lines, path=tmp_path / "kept")
    assert [kept("a-", "b"), kept("a", "-b"), kept("a-b")] == [[1, 0], [0, 1], [1]]


def test_a_changed_check_is_run_again(tmp_path: Path) -> None:
    for mark, count in (("-", 1), ("+", 0)):
        module = imported(tmp_path, CHECK.replace("MARK", repr(mark)))
        assert remembered(module.lines, path=tmp_path / "kept")("a-b") == [count]
