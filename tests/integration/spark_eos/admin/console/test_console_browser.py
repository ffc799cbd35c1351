"""The console in a browser: nothing of a name runs, the keyboard's place stays, zoom stays, a phone is wide enough."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from spark_eos.admin.command import main as eos_kafka
from spark_eos.admin.console.pages import ASSETS, asset, page
from spark_eos.client.kafka_client import KafkaClient
from tests.support.chromium import MISSING, chromium, has_chromium
from tests.support.console_scene import PREFIX, Scene, SceneQuery, staged
from tests.support.hanging import HANGING_SETTINGS
from tests.support.spark_eos.brokers import SETTINGS, running_broker
from tests.support.spark_eos.console import RunningConsole, running_console
from tests.support.waiting import wait_until

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
# What a screen reader needs: names of controls and pictures, one heading of the page, heads of tables.
CHECKS = """
const all = (selector, isBad) => [...document.querySelectorAll(selector)].filter(isBad).map(each => each.outerHTML);
const isNamed = each => each.textContent.trim() || each.getAttribute("aria-label") || each.labels?.length;
const isTitled = each => each.closest("[aria-hidden]") || each.matches("[aria-label], [aria-labelledby]");
const isTwice = each => document.querySelectorAll("#" + CSS.escape(each.id)).length > 1;
return [
  ...all("button, a[href], input, select", each => !isNamed(each)),
  ...all("svg", each => !isTitled(each)),
  ...all(".scroll table", each => !each.querySelector("th[scope=col]")),
  ...all("[id]", isTwice),
  ...(document.querySelectorAll("h1").length === 1 ? [] : ["h1"]),
  ...(document.querySelector("main") && document.documentElement.lang ? [] : ["landmarks"]),
];
"""


@pytest.fixture(scope="module")
def scene(broker_kind: str) -> Iterator[Scene]:
    if not has_chromium():
        pytest.skip(MISSING)
    with running_broker(broker_kind, SETTINGS | HANGING_SETTINGS) as address, staged(address) as found:
        yield found


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> None:
    """Leave a test to runs with --apache."""
    if not request.config.getoption("--apache"):
        pytest.skip("runs with --apache, as it takes long")


@pytest.fixture(scope="module")
def console(scene: Scene) -> Iterator[RunningConsole]:
    with running_console(scene.address, scene.decisions, allow_changes=True) as found:
        yield found


@pytest.fixture(scope="module")
def browser(scene: Scene) -> Iterator[webdriver.Chrome]:
    with chromium(width=1280) as chrome:
        yield chrome


def pages(scene: Scene) -> dict[str, str]:
    return {
        "overview": "",
        "partition": f"partition?topic={scene.orders}&partition=0",
        "transaction": f"transaction?id={quote(scene.open_id, safe='')}",
        "query": f"query?prefix={PREFIX}&query={scene.query}",
    }


def ready(browser: webdriver.Chrome) -> None:
    wait_until(
        lambda: browser.execute_script("return !!document.querySelector('#lanes [data-bar], #content section')"),
        "the page has its data",
    )


def severe(browser: webdriver.Chrome) -> list[dict[str, object]]:
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@pytest.mark.parametrize("kind", ["overview", "partition", "transaction", "query"])
def test_names_from_the_cluster_are_text_and_every_control_has_a_name(
    kind: str, scene: Scene, console: RunningConsole, browser: webdriver.Chrome
) -> None:
    browser.get(console.address + pages(scene)[kind])
    ready(browser)
    if kind != "query":
        assert scene.open_id in browser.find_element(By.TAG_NAME, "main").text
    assert browser.execute_script("return window.hit ?? null") is None
    assert browser.find_elements(By.CSS_SELECTOR, "img, [onload], [onerror]") == []
    assert browser.execute_script(CHECKS) == []
    assert severe(browser) == []


def hostile(value: object, name: str = "") -> object:
    """Return data with markup in every text, as if any name could contain it; addresses are made by the server."""
    if isinstance(value, str) and name not in ("href", "kind"):
        return f"<img src=x onerror=\"window.hit='{name}'\"><script>window.hit='{name}'</script>{value}"
    if isinstance(value, dict):
        return {key: hostile(each, key) for key, each in value.items()}
    return [hostile(each, name) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", ["overview", "partition", "transaction", "query"])
def test_markup_in_any_text_of_the_data_stays_text(
    kind: str, scene: Scene, console: RunningConsole, browser: webdriver.Chrome, tmp_path: Path
) -> None:
    path = pages(scene)[kind]
    document = console.get(f"api/{path or kind}").document
    (tmp_path / "assets").mkdir()
    for name in ASSETS:
        (tmp_path / "assets" / name).write_text(asset(name), encoding="utf-8")
    (tmp_path / "page.html").write_text(page(kind, kind, hostile(document)), encoding="utf-8")  # type: ignore[arg-type]
    browser.get((tmp_path / "page.html").as_uri())
    ready(browser)
    assert "<img src=x" in browser.find_element(By.TAG_NAME, "main").text
    assert browser.execute_script("return window.hit ?? null") is None
    assert browser.find_elements(By.CSS_SELECTOR, "img, [onerror], main script") == []
    assert severe(browser) == []


@pytest.mark.usefixtures("thorough")
def test_pages_fit_a_phone(scene: Scene, console: RunningConsole, browser: webdriver.Chrome) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        for path in pages(scene).values():
            browser.get(console.address + path)
            ready(browser)
            assert browser.execute_script("return document.documentElement.scrollWidth") == PHONE["width"]
            # All lines of a cell stand beside its label, which is at the left.
            under_labels = browser.execute_script(
                "return [...document.querySelectorAll('.scroll tbody :is(td, th)')].filter(cell => {"
                " const text = document.createRange(); text.selectNodeContents(cell);"
                " return [...text.getClientRects()].some(line => line.left < cell.getBoundingClientRect().left + 100);"
                " }).map(cell => cell.textContent)"
            )
            assert under_labels == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.usefixtures("thorough")
def test_focus_and_filter_stay_while_the_page_looks_again(
    scene: Scene, console: RunningConsole, browser: webdriver.Chrome
) -> None:
    browser.get(console.address)
    ready(browser)
    browser.find_element(By.TAG_NAME, "body").send_keys("/", "billing-2")
    assert browser.switch_to.active_element.get_attribute("id") == "filter"
    wait_until(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#open tbody tr")) == 0, "the filter is applied")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#hanging li")) == 1
    for _ in range(20):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element.text == "Copy":
            break
    marked = "document.activeElement.seen = true; return document.querySelector('#pace').textContent"
    before = browser.execute_script(marked)
    wait_until(
        lambda: browser.execute_script("return document.querySelector('#pace').textContent") != before, "a later look"
    )
    assert browser.execute_script("return [document.activeElement.textContent, document.activeElement.seen]") == [
        "Copy",
        True,
    ]


@pytest.mark.usefixtures("thorough")
def test_timeline_follows_the_log_and_keeps_its_zoom(
    scene: Scene, console: RunningConsole, browser: webdriver.Chrome
) -> None:
    browser.get(f"{console.address}partition?topic={scene.orders}&partition=3")
    ready(browser)
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys("+", "+", Keys.ARROW_LEFT, "n")
    first = "return document.querySelector('#axis text.faint').textContent"
    before, pinned = browser.execute_script(first), browser.find_element(By.ID, "tip").text
    assert "transactional id" in pinned
    count = "return document.querySelector('#summary').textContent"
    summary = browser.execute_script(count)
    with KafkaClient(console.documents.collector._client.options) as client:
        SceneQuery(Scene(scene.address, scene.tag), client).commit(0)
    wait_until(lambda: browser.execute_script(count) != summary, "the page has followed the log")
    assert browser.execute_script(first) == before
    assert len(browser.find_elements(By.CSS_SELECTOR, "#lanes .pinned")) == 1


@pytest.mark.usefixtures("thorough")
def test_change_is_shown_before_it_is_confirmed_and_can_be_left_by_the_keyboard(
    scene: Scene, console: RunningConsole, browser: webdriver.Chrome
) -> None:
    browser.get(console.address)
    ready(browser)
    button = browser.find_element(By.CSS_SELECTOR, "#hanging [data-action]")
    button.send_keys(Keys.ENTER)
    dialog = browser.find_element(By.ID, "dialog")
    wait_until(lambda: "write an abort marker" in dialog.text, "the plan is shown")
    assert browser.switch_to.active_element.text == "Cancel"
    title, partition, coordinator, step, *buttons = dialog.text.splitlines()
    assert (title, partition[:11], coordinator[:13]) == ("This is about to happen", "Partition: ", "Coordinator: ")
    assert (step[:21], buttons) == ("write an abort marker", ["Cancel", "Carry out"])
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    wait_until(lambda: not dialog.is_displayed(), "the dialog is closed")
    assert console.get("api/overview").document["hanging"]["count"] == 1
    button.send_keys(Keys.ENTER)
    wait_until(lambda: "Carry out" in dialog.text, "the plan is shown")
    dialog.find_element(By.CSS_SELECTOR, "[data-confirm]").click()
    wait_until(lambda: "Done: write an abort marker" in dialog.text, "the result is shown")
    dialog.find_element(By.CSS_SELECTOR, "[data-close]").click()
    wait_until(lambda: not browser.find_elements(By.CSS_SELECTOR, "#hanging li"), "the page has looked again")


@pytest.mark.usefixtures("thorough")
def test_written_pages_work_from_the_disk(scene: Scene, browser: webdriver.Chrome, tmp_path: Path) -> None:
    words = ["--decision-topic", scene.decisions, "--requests-per-second", "500", "--once", "--out", str(tmp_path)]
    assert eos_kafka(["console", "--bootstrap-server", scene.address, *words]) == 0
    for name in sorted(each.name for each in tmp_path.glob("*.html")):
        browser.get((tmp_path / name).as_uri())
        ready(browser)
        data = json.loads(browser.find_element(By.ID, "data").get_attribute("textContent") or "{}")
        assert "error" not in data
        assert browser.execute_script("return window.hit ?? null") is None
        assert browser.find_elements(By.CSS_SELECTOR, "[data-action]") == []
        assert severe(browser) == []
