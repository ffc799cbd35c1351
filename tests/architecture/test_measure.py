"""The counts of `python -m tests.support.measure`."""

import pytest

from tests.support.architecture import Module
from tests.support.measure import MESSAGE, files_naming, forwarding_methods, repeated_classes, single_importer_files


def test_name_counts_once_for_each_file_that_has_it() -> None:
    texts = ['KEYS = ["log.dirs", "log.dirs"]', "`log.dirs` and log.dirs.", '"log.dir", "my.log.dirs", topic']
    assert files_naming(["log.dirs", "log.dir", "topic"], texts) == {"log.dirs": 2, "log.dir": 1}
    assert files_naming(["failOnDataLoss"], ["failOnDataLoss: failondataloss"]) == {"failOnDataLoss": 1}


def test_api_counts_where_its_messages_are_named() -> None:
    texts = ["m.FetchRequest, m.FetchResponse", "Fetch", "ShareFetchRequest"]
    assert files_naming(["Fetch", "ShareFetch"], texts, MESSAGE) == {"Fetch": 1, "ShareFetch": 1}


@pytest.mark.parametrize(
    ("body", "forwards"),
    [
        ("return self._log.read(offset)", True),
        ("'''Read.'''\n  return self.broker.log.read(offset=offset)", True),
        ("return self.read(offset)", False),
        ("return self._log.read(offset + 1)", False),
        ("return self._log.read(offset, 1)", False),
        ("return self._log.read()", False),
        ("check(offset)\n  return self._log.read(offset)", False),
    ],
)
def test_method_forwards_if_it_passes_its_arguments_on(body: str, forwards: bool) -> None:
    source = f"class Reader:\n def read(self, offset):\n  {body}"
    assert list(forwarding_methods(source)) == (["Reader.read"] if forwards else [])


def test_short_file_with_one_importer_is_found() -> None:
    modules = [
        Module("p", True, ""),
        Module("p.one", False, "import p.two\nimport p.long\nfrom p import three\nclass Place: pass"),
        Module("p.two", False, "from p import three\nclass Place: pass"),
        Module("p.three", False, "class Other: pass"),
        Module("p.long", False, "\n" * 100),
    ]
    assert single_importer_files(modules) == ["p.two"]
    assert repeated_classes(modules) == ["Place"]
