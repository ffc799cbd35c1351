"""The generated requests and the document of their differences."""

from tests.support.request_generator.cases import APIS, cases
from tests.support.request_generator.known import PAGE, rewritten
from tests.support.request_generator.steps import WORLD


def test_the_document_of_differences_is_current():
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page, "run: python -m tests.support.request_generator.known"


def test_every_run_sends_the_same_requests():
    versions = {name: (api.min_version, api.max_version) for name, api in APIS.items()}
    assert cases(versions, 3) == cases(versions, 3)


def test_an_api_without_rows_gets_requests():
    assert {case.step.api for case in cases({"DescribeProducers": (0, 0)})} == {"DescribeProducers"}
    assert WORLD
