"""Generated requests to both brokers: the answers differ only as a table lists.

The differences are those of `tests/support/request_generator/known.py`. One that does not exist any more fails too.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.support.guarded_kafka import USERS, guarded_kafka, log_in
from tests.support.raw_client import RawClient
from tests.support.request_generator.cases import APIS, Case, cases
from tests.support.request_generator.comparison import Difference, differences
from tests.support.request_generator.known import KNOWN, NOT_SERVED
from tests.support.request_generator.runner import DEADLINE_S, Answer, Runner

# Topics are created by cases only, and both brokers have the same users.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "sasl.enabled.mechanisms": "PLAIN",
    # The requests have records of 1970, which Apache Kafka would delete 30 s after its start.
    "log.retention.ms": "-1",
    # Members are there until the end, however slow the machine is.
    **{
        f"group.{kind}.{name}.timeout.ms": "600000"
        for kind in ("consumer", "share")
        for name in ("session", "max.session")
    },
}
# Older versions get every third wrong request, each version other ones: half a minute instead of a whole one.
EVERY = 3
FEWEST_CASES = 500
SHOWN = 20

Versions = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Comparison:
    """The versions that both brokers advertise, the cases, and all that differs."""

    apache: Versions
    ours: Versions
    sent: Sequence[Case]
    found: Sequence[Difference]


def common(apache: Versions, ours: Versions) -> dict[str, tuple[int, int]]:
    """Return the versions of the APIs that both brokers serve; those below the served minimum are refused by both."""
    return {
        name: (max(apache[name][0], api.min_version), min(apache[name][1], ours[name][1]))
        for name, api in APIS.items()
        if name in apache and name in ours
    }


def collect(kind: str, folder: Path) -> tuple[Versions, Sequence[Case], Mapping[int, Answer]]:
    """Send all cases to a broker of this kind."""
    with guarded_kafka(kind, folder, SETTINGS) as kafka:
        runner = Runner(
            partial(RawClient, kafka.bootstrap_servers, deadline_s=DEADLINE_S), partial(log_in, kafka, USERS[0])
        )
        try:
            versions = runner.versions()
            served = {name: (api.min_version, api.max_version) for name, api in APIS.items()}
            sent = cases(common(versions, served), EVERY)
            runner.prepare()
            return versions, sent, runner.answers(sent)
        finally:
            runner.close()


@pytest.fixture(scope="module")
def compared(apache_asked_for: None, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Return what differs between the answers of both brokers, which get the requests at the same time."""
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(collect, kind, tmp_path_factory.mktemp(kind)) for kind in ("apache", "broker_core")]
        (apache, sent, theirs), (ours, sent_here, own) = (each.result() for each in both)
    assert [case.name for case in sent] == [case.name for case in sent_here]
    found = [each for case in sent for each in differences(case, theirs[case.number], own[case.number])]
    return Comparison(apache, ours, sent, found)


def test_each_version_that_both_brokers_serve_is_covered(compared: Comparison):
    assert len(compared.sent) >= FEWEST_CASES
    covered = {(case.step.api, case.step.version) for case in compared.sent}
    for name, (low, high) in common(compared.apache, compared.ours).items():
        assert {(name, version) for version in range(low, high + 1)} <= covered


@pytest.mark.parametrize("api", sorted(APIS))
def test_answers_differ_only_as_listed(compared: Comparison, api: str):
    unlisted = [
        str(each)
        for each in compared.found
        if each.case.step.api == api and not any(known.explains(each) for known in KNOWN)
    ]
    assert not unlisted, "\n".join([f"{len(unlisted)} differences", *unlisted[:SHOWN]])


def test_each_listed_difference_exists(compared: Comparison):
    gone = [
        f"{known.api} {known.label} {known.path}"
        for known in KNOWN
        if not known.is_by_chance and not any(known.explains(each) for each in compared.found)
    ]
    assert not gone, f"remove these rows from the table of known differences: {gone}"


def test_the_apis_that_are_not_served_are_those_listed(compared: Comparison):
    missing = {int(key) for key in compared.apache if key.isdecimal()}
    assert missing == set(NOT_SERVED), "the table of APIs that are not served is not current"
    served = {name: compared.ours[name] for name in compared.apache if name in compared.ours}
    assert served == {name: compared.apache[name] for name in served}
