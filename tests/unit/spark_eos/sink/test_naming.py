"""Names are parsed exactly and never confused."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.sink.incarnation import is_left, leave, local_path, take, use_folder
from spark_eos.sink.naming import (
    TaskId,
    decision_key,
    driver_id,
    escape,
    group_id,
    id_prefix,
    parse_task_id,
    run_again,
    unescape,
)

QUERY, RUN = "8a1c0d3e-0000-4000-8000-000000000001", "8a1c0d3e-0000-4000-8000-000000000009"

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
tricky = st.sampled_from(["a", "a.b", "a.b.c", "%2E", "a%2Eb", "driver", "0", "a/b", "ü.ü", "-", ".", ".."]) | names


@given(prefix=tricky, query=tricky, run=tricky, worker=tricky, number=st.integers(0, 10**9))
def test_task_id_is_parsed_back_exactly(prefix: str, query: str, run: str, worker: str, number: int) -> None:
    name = TaskId(prefix, query, run, worker, number)
    assert parse_task_id(str(name)) == name
    assert str(name).startswith(id_prefix(prefix, query))


@given(
    one=st.tuples(tricky, tricky), other=st.tuples(tricky, tricky), first=st.integers(0, 3), second=st.integers(0, 3)
)
def test_group_driver_and_decision_names_are_unique_per_query(
    one: tuple[str, str], other: tuple[str, str], first: int, second: int
) -> None:
    if one != other:
        assert group_id(*one) != group_id(*other)
        assert driver_id(*one) != driver_id(*other)
        assert decision_key(*one) != decision_key(*other)
    if (one, first) != (other, second):
        assert decision_key(*one, first) != decision_key(*other, second)


def test_decision_part_key_differs_from_that_of_a_prefix_with_a_slash() -> None:
    assert decision_key("a", "b", 1) != decision_key("a/b", "1", 0)


@given(prefix=tricky, query=tricky)
def test_driver_id_is_not_parsed_as_a_task_id(prefix: str, query: str) -> None:
    assert parse_task_id(driver_id(prefix, query)) is None


def test_prefix_of_another_prefix_matches_none_of_its_ids() -> None:
    parsed = parse_task_id(str(TaskId("orders.eu", "q", "r", "w", 1)))
    assert parsed is not None and parsed.prefix == "orders.eu"
    confusing = str(TaskId("orders", "eu.q", "r", "w", 1))
    assert parse_task_id(confusing) == TaskId("orders", "eu.q", "r", "w", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b",
        "p.q.r.w.x",
        "p.q.r.w.01",
        "p.q.r.w.-1",
        ".q.r.w.1",
        "p..r.w.1",
        "p.q%2e.r.w.1",
        "p.q%41.r.w.1",
        "p.q%FF.r.w.1",
        "p.q r.r.w.1",
        "p.q.r.w.99999999999",
    ],
)
def test_names_the_sink_never_writes_are_not_recognized(text: str) -> None:
    assert parse_task_id(text) is None


@given(names)
def test_escaped_names_are_plain_and_reversible(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_%-]+", escape(name))
    assert unescape(escape(name)) == name


@pytest.mark.parametrize(
    ("query", "run", "words"),
    [
        (QUERY, RUN, "restart the query with the same 3 tasks"),
        (QUERY, "", "restart the query with the same 3 tasks"),
        (f"{QUERY}/orders", RUN, "restart the query with the same 3 tasks"),
        ("report", "5e0c8a7d3b1f4a26", "run the job again with the same 3 tasks, with jobId=report"),
        (QUERY, "5e0c8a7d3b1f4a26", f"run the job again with the same 3 tasks, with jobId={QUERY}"),
    ],
)
def test_advice_to_run_again_fits_a_query_or_a_job(query: str, run: str, words: str) -> None:
    assert run_again(query, run, " with the same 3 tasks") == words


# The texts that the processes of one driver leave for each other


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
