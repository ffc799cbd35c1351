"""The checks of the documentation, on small pages."""

from pathlib import Path

import pytest

from broker_core import EmbeddedBroker
from tests.support.document_blocks import problems, run_page
from tests.support.documents import Page

FENCE = "```"


def page_of(*blocks: str) -> Page:
    return Page("docs/example.md", "# A page\n\n" + "\n\n".join(blocks) + "\n")


def block_of(language: str, code: str, above: str = "") -> str:
    return f"{above}\n{FENCE}{language}\n{code}\n{FENCE}" if above else f"{FENCE}{language}\n{code}\n{FENCE}"


def test_page_is_parsed_into_blocks() -> None:
    page = Page(
        "docs/example.md",
        "# A page\n\n<!-- blocks: broker; topics: in, out -->\n\n"
        "## The `topic` option, twice\n\n## The topic option, twice\n\n"
        f'    {FENCE}python title="job.py"\n    if True:\n        x = "[no](link.md)"\n    {FENCE}\n\n'
        "A [link](other.md#part), `[none](x.md)`.\n\n| a | `b\\|c` |\n|---|---|\n",
    )
    assert (page.needs, page.topics) == ("broker", {"in": 2, "out": 2})
    [block] = page.blocks
    assert (block.language, block.title, block.line) == ("python", "job.py", 10)
    assert block.code == 'if True:\n    x = "[no](link.md)"\n'
    assert page.anchors == {"a-page", "the-topic-option-twice", "the-topic-option-twice_1"}
    assert list(page.links()) == [(14, "other.md#part")]
    assert [cell for _, cell in page.cells()][:2] == ["a", "b\\|c"]


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (block_of("json", "{"), "not valid json"),
        (block_of("properties", "just words"), "not valid properties"),
        (block_of("ruby", "puts"), "the language is 'ruby'"),
        (block_of("", "x"), "the language is ''"),
        (block_of("bash", "make coffee"), "the Makefile has no target coffee"),
        (block_of("bash", "pip install ."), "it installs something"),
        (block_of("bash", "false", "<!-- not run: no -->"), "`not run` needs a reason"),
        (block_of("text", "x", "<!-- not run: it is only text -->"), "is never run"),
    ],
)
def test_invalid_block_is_reported(block: str, found: str) -> None:
    [one] = page_of(block).blocks
    assert [problem for problem in problems(one) if found in problem]


@pytest.mark.parametrize(
    "block",
    [
        block_of("yaml", "a: 1\n---\nb: 2"),
        block_of("properties", "# a comment\na.b=c"),
        block_of("ruby", "puts", "<!-- not run: needs a Ruby interpreter -->"),
        block_of("bash", "make test\nls"),
    ],
)
def test_valid_block_is_accepted(block: str) -> None:
    [one] = page_of(block).blocks
    assert list(problems(one)) == []


def test_blocks_share_names_files_and_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = page_of(
        block_of("python", 'address = "localhost:9092"'),
        block_of("python", "assert False", "<!-- not run: shows a failure -->"),
        block_of('python title="helper.py"', 'name = "lines"'),
        block_of("python", "def test_it():\n    from helper import name\n    assert name == 'lines'"),
        block_of("bash", "echo localhost:9092 > found\nmake demo"),
        block_of("python", "assert open('found').read().strip() == address != 'localhost:' + '9092'"),
    )
    with EmbeddedBroker() as kafka:
        run_page(page, tmp_path, kafka.bootstrap_servers)


@pytest.mark.parametrize(
    "block",
    [
        block_of("python", "raise AssertionError"),
        block_of("python", "def test_it():\n    raise AssertionError"),
        block_of("bash", "false\ntrue"),
        block_of("bash", "eos-kafka completion bash\neos-kafka decisions list"),
        block_of("bash", "python -m tests.support.architecture --nothing"),
    ],
)
def test_failing_block_fails_its_page(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=None if "raise" in block else "ended with status"):
        run_page(page_of(block), tmp_path)
