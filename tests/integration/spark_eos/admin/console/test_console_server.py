"""Who may use the console's server: addresses, names, origins and methods. The broker is one that does not exist."""

import threading
from collections.abc import Iterator

import pytest

from spark_eos.admin.command import main as eos_kafka
from spark_eos.admin.console.documents import Documents
from spark_eos.admin.console.pages import LiveLinks
from spark_eos.admin.console.server import ConsoleServer
from tests.support.spark_eos.console import DEADLINE_S, RunningConsole, arguments

PLAN = {"kind": "force-terminate", "id": "anything"}


def served(*, allow_changes: bool) -> Iterator[RunningConsole]:
    documents = Documents(arguments("127.0.0.1:1", "decisions"), LiveLinks())
    server = ConsoleServer(documents, port=0, allow_changes=allow_changes)
    serving = threading.Thread(target=server.run)
    serving.start()
    try:
        assert server.ready.wait(DEADLINE_S)
        yield RunningConsole(documents, server)
    finally:
        server.should_exit = True
        serving.join(DEADLINE_S)
        documents.close()


@pytest.fixture(scope="module")
def reader() -> Iterator[RunningConsole]:
    yield from served(allow_changes=False)


@pytest.fixture(scope="module")
def changer() -> Iterator[RunningConsole]:
    yield from served(allow_changes=True)


def test_page_without_the_token_does_not_exist(reader: RunningConsole) -> None:
    assert reader.get().status == 200
    for root in ("/", "/wrong/", "/api/overview", f"/{reader.server.token[:-1]}/", "//"):
        answer = reader.get(root=root)
        assert answer.status == 404
        assert reader.server.token not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1.evil.example:80", ""])
def test_another_host_name_is_refused_as_by_dns_rebinding(reader: RunningConsole, host: str) -> None:
    assert reader.get("api/overview", Host=host).status == 421


def test_pages_of_other_sites_cannot_read(reader: RunningConsole) -> None:
    for site in ("cross-site", "same-site"):
        assert reader.get("api/overview", **{"Sec-Fetch-Site": site}).status == 403
    answer = reader.get("api/overview", Origin="http://evil.example")
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_browsers_may_load_nothing_from_elsewhere(reader: RunningConsole) -> None:
    for path in ("", "assets/console.js", "api/overview", "partition?topic=t&partition=0"):
        headers = {name.lower(): value for name, value in reader.get(path).headers.items()}
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


def test_only_the_files_of_the_pages_are_served(reader: RunningConsole) -> None:
    for name in ("..%2f..%2fsetup.cfg", "../__init__.py", "page.html", "none"):
        assert reader.get(f"assets/{name}").status == 404


def test_reading_console_has_no_way_to_change_anything(reader: RunningConsole) -> None:
    assert reader.post("api/plan", PLAN).status == 404
    assert reader.post("api/overview", PLAN).status == 405


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"x_eos_kafka_console": None},
        {"Content_Type": "text/plain"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
    ids=lambda headers: "-".join(f"{name}={value}" for name, value in headers.items()),
)
def test_change_of_another_origin_is_refused(changer: RunningConsole, headers: dict[str, str | None]) -> None:
    assert changer.post("api/plan", PLAN, **headers).status == 403
    assert changer.post("api/carry-out", {"plan": "x"}, **headers).status == 403


def test_plan_that_was_not_shown_cannot_be_carried_out(changer: RunningConsole) -> None:
    answer = changer.post("api/carry-out", {"plan": "guessed"})
    assert (answer.status, answer.document["error"][:19]) == (409, "Nothing was changed")


@pytest.mark.parametrize("document", [[], "text", {"kind": "drop"}, {"kind": "abort", "topic": "t", "partition": "0"}])
def test_malformed_change_is_refused(changer: RunningConsole, document: object) -> None:
    assert changer.post("api/plan", document).status == 400


def test_names_are_escaped_in_the_html_of_a_page(reader: RunningConsole) -> None:
    for path in ("transaction?id=%3Cscript%3Ealert(1)%3C/script%3E", "partition?topic=%3Cscript%3E&partition=0"):
        assert "<script>" not in reader.get(path).text


def test_server_listens_on_loopback_only(reader: RunningConsole) -> None:
    [server] = reader.server.servers
    assert [each.getsockname()[0] for each in server.sockets] == ["127.0.0.1"]


@pytest.mark.parametrize(
    "words", [["--once"], ["--out", "x"], ["--once", "--out", "x", "--allow-changes"]], ids=lambda words: words[-1]
)
def test_options_that_do_not_go_together_are_refused(words: list[str]) -> None:
    assert eos_kafka(["console", "--bootstrap-server", "h:1", *words]) == 2
