"""The texts that the processes of one driver leave for each other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_eos.sink.incarnation import is_left, leave, local_path, take, use_folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    use_folder(str(tmp_path))
    yield tmp_path
    use_folder(None)


def test_what_was_left_is_taken_once(folder: Path) -> None:
    assert take("doubt", "q") is None
    leave("doubt", "q")
    assert (take("doubt", "q"), take("doubt", "q")) == ("", None)
    assert not list(folder.iterdir())


def test_what_was_not_read_is_kept_for_the_next_look(folder: Path) -> None:
    """As what an abort leaves while the writer of another query looks; the next writer has to check the cluster."""
    path = local_path("doubt", "q")
    assert path is not None
    path.symlink_to(folder / "later")
    assert take("doubt", "q") is None
    (folder / "later").write_text("")
    assert take("doubt", "q") == ""


@pytest.mark.parametrize("own", ["spark-1/pyspark-2", "pyspark-2"])
@pytest.mark.parametrize("is_users", [True, False])
def test_what_is_left_in_the_other_directory_of_the_driver_is_seen(tmp_path: Path, own: str, is_users: bool) -> None:
    """The user's own process has one directory, and Spark's Python processes have another."""
    first, second = (own, "blockmgr-3") if is_users else ("blockmgr-3", own)
    for each in (first, second, "other"):
        (tmp_path / each).mkdir(parents=True)
    use_folder(str(tmp_path / first))
    leave("compared", "q")
    use_folder(str(tmp_path / second))
    assert is_left("compared", "q")
    assert not is_left("compared", "r")
    use_folder(str(tmp_path / "other"))
    leave("compared", "s")
    use_folder(str(tmp_path / first))
    assert not is_left("compared", "s")
    use_folder(None)
