"""A timeline's page in a browser: headless Chromium, driven by Selenium."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains, ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from broker_core.types import TopicPartition
from spark_eos.admin.timeline_page import PlainStretch, Timeline, TransactionBar, TransactionOutcome, page
from spark_eos.client.inspection import TransactionDescription
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.transactions.findings import Owner, hanging_finding, live_finding
from tests.support.chromium import MISSING, chromium, has_chromium

NOW_MS = 1_700_000_000_000
TP = TopicPartition("orders", 0)


def bar(
    producer_id: int, first: int, last: int, outcome: TransactionOutcome = TransactionOutcome.COMMITTED
) -> TransactionBar:
    is_open = outcome is TransactionOutcome.OPEN
    return TransactionBar(
        producer_id,
        4,
        first,
        last,
        last - first + 1,
        2,
        2_000,
        NOW_MS + first,
        NOW_MS + last,
        outcome,
        None if is_open else last + 1,
        None if is_open else NOW_MS + last + 1,
        None if is_open else 9,
    )


STUCK = bar(3, 500, 799, TransactionOutcome.OPEN)
COORDINATOR = Owner(1, TransactionDescription("stuck<b>", 0, "Ongoing", 3, 4, 60_000, NOW_MS + 500, (TP,)))
FINDING = live_finding(STUCK.transaction(TP), [COORDINATOR])
assert FINDING is not None
TIMELINE = Timeline(
    topic_partition=TP,
    taken_at_ms=NOW_MS + 5_000,
    commands=OperatorCommands(("kafka:9092",)),
    start=0,
    log_start_offset=0,
    last_stable_offset=500,
    high_watermark=1_000,
    transactions=[
        bar(1, 0, 199),
        bar(2, 210, 390, TransactionOutcome.ABORTED),
        STUCK,
        bar(1, 800, 890),
        bar(4, 900, 999, TransactionOutcome.OPEN),
    ],
    plain=[PlainStretch(400, 449, 50, NOW_MS + 400, NOW_MS + 449)],
    owners={1: "loader-1", 2: "loader-2", 3: "stuck<b>"},
    findings={3: FINDING},
)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Start a browser without a window."""
    if not has_chromium():
        pytest.skip(MISSING)
    with chromium() as chrome:
        yield chrome


@pytest.fixture
def picture(browser: webdriver.Chrome, tmp_path: Path) -> webdriver.Chrome:
    """Load the page again."""
    path = tmp_path / "timeline.html"
    path.write_text(page(TIMELINE), encoding="utf-8")
    browser.get(path.as_uri())
    return browser


def bars(picture: webdriver.Chrome, kind: str = "") -> list[WebElement]:
    return picture.find_elements(By.CSS_SELECTOR, f"#lanes [data-bar]{kind}")


def tip(picture: webdriver.Chrome) -> str:
    return picture.find_element(By.ID, "tip").text


def width(element: WebElement) -> float:
    return float(element.get_attribute("width") or 0)


def test_every_transaction_is_drawn_from_its_first_record_to_its_marker(picture: webdriver.Chrome) -> None:
    assert [len(bars(picture, kind)) for kind in (".committed", ".aborted", ".open", ".plain")] == [2, 1, 2, 1]
    assert len(bars(picture, ".blocking")) == 1
    committed = bars(picture, ".committed")
    # A transaction of 201 offsets including its marker, beside one of 92.
    assert width(committed[0]) / width(committed[1]) == pytest.approx(201 / 92, rel=0.02)
    names = [each.text for each in picture.find_elements(By.CSS_SELECTOR, "#lanes text")]
    assert names == ["stuck<b>", "producer 4", "loader-1", "loader-2", "no transaction"]
    assert "It is the transaction of 'stuck<b>'" in picture.find_element(By.ID, "summary").text
    assert not [entry for entry in picture.get_log("browser") if entry["level"] == "SEVERE"]


def test_last_stable_offset_and_high_watermark_are_drawn_in_place(picture: webdriver.Chrome) -> None:
    stable = picture.find_element(By.CSS_SELECTOR, "#lanes line.stable")
    high = picture.find_element(By.CSS_SELECTOR, "#lanes line.high")
    blocking = bars(picture, ".blocking")[0]
    assert float(stable.get_attribute("x1") or 0) == pytest.approx(float(blocking.get_attribute("x") or 1), abs=0.2)
    assert float(high.get_attribute("x1") or 0) > float(stable.get_attribute("x1") or 0)
    axis = [each.text for each in picture.find_elements(By.CSS_SELECTOR, "#axis text")]
    assert "last stable offset 500" in axis
    assert "high watermark 1,000" in axis


def test_hovering_shows_producer_and_offsets(picture: webdriver.Chrome) -> None:
    ActionChains(picture).move_to_element(bars(picture, ".aborted")[0]).perform()
    text = tip(picture)
    for words in (
        "loader-2",
        "producer id 2",
        "producer epoch 4",
        "state aborted",
        "first offset 210",
        "last offset 390",
        "offset 391, coordinator epoch 9",
        "181 in 2 batches",
    ):
        assert words in text
    ActionChains(picture).move_to_element(bars(picture, ".blocking")[0]).perform()
    assert "coordinator state Ongoing" in tip(picture)
    assert "blocks the last stable offset" in tip(picture)
    ActionChains(picture).move_to_element(picture.find_element(By.TAG_NAME, "h1")).perform()
    assert tip(picture) == ""


def test_click_pins_the_details(picture: webdriver.Chrome) -> None:
    ActionChains(picture).move_to_element(bars(picture, ".aborted")[0]).click().perform()
    ActionChains(picture).move_to_element(picture.find_element(By.TAG_NAME, "h1")).perform()
    assert "loader-2" in tip(picture)
    assert len(bars(picture, ".pinned")) == 1


def test_wheel_zooms_about_the_pointer_and_reset_restores(picture: webdriver.Chrome) -> None:
    before = width(bars(picture, ".aborted")[0])
    origin = ScrollOrigin.from_element(bars(picture, ".aborted")[0])
    ActionChains(picture).scroll_from_origin(origin, 0, -300).perform()
    after = width(bars(picture, ".aborted")[0])
    assert after > before * 1.2
    picture.find_element(By.ID, "all").click()
    assert width(bars(picture, ".aborted")[0]) == pytest.approx(before, abs=0.2)


def test_dragging_pans_the_log(picture: webdriver.Chrome) -> None:
    lanes = picture.find_element(By.ID, "lanes")
    before = float(bars(picture, ".aborted")[0].get_attribute("x") or 0)
    ActionChains(picture).drag_and_drop_by_offset(lanes, 100, 0).perform()
    after = float(bars(picture, ".aborted")[0].get_attribute("x") or 0)
    assert after - before == pytest.approx(100, abs=2)


def test_keyboard_selects_the_blocking_transaction(picture: webdriver.Chrome) -> None:
    picture.find_element(By.TAG_NAME, "body").send_keys("w")
    assert len(bars(picture, ".aborted")) == 0
    assert len(bars(picture, ".blocking")) == 1
    picture.find_element(By.TAG_NAME, "body").send_keys(Keys.ARROW_LEFT, "0")
    assert len(bars(picture, ".aborted")) == 1


def test_time_axis_replaces_offsets(picture: webdriver.Chrome) -> None:
    Select(picture.find_element(By.ID, "scale")).select_by_value("time")
    opened, committed = bars(picture, ".blocking")[0], bars(picture, ".committed")[0]
    # Open for 4.5 s, beside one that took 200 ms.
    assert width(opened) / width(committed) == pytest.approx(4_500 / 200, rel=0.05)


def test_open_transactions_are_listed_as_text(picture: webdriver.Chrome) -> None:
    rows = [each.text for each in picture.find_elements(By.CSS_SELECTOR, "#opened tr")][1:]
    assert rows == ["stuck<b> 3 4 500 300 5 s Ongoing", "? 4 4 900 100 first record dated 4 s ago ?"]


LONG_ID = "eos-kafka.6f1c2d34-9b1e-4c55-8a0e-2f6f0f1f7a01.0b7a91c2-54d0-4f0f-9a55-0d1f6f3a1e10.w0.0"
# A transaction without records on the page.
ONLY_MARKER = TransactionBar(5, 1, outcome=TransactionOutcome.ABORTED, marker_offset=620, marker_timestamp_ms=NOW_MS)
COMMITTED = Owner(1, TransactionDescription(LONG_ID, 0, "CompleteCommit", 3, 5, 60_000, NOW_MS, ()))
HANGING = replace(
    TIMELINE,
    transactions=[ONLY_MARKER, *TIMELINE.transactions],
    owners={3: LONG_ID, 5: "init-only"},
    findings={3: hanging_finding(STUCK.transaction(TP), [COMMITTED])},
)


@pytest.fixture
def hanging(browser: webdriver.Chrome, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[webdriver.Chrome]:
    """Load a page with a transaction that hangs, in the width of the test."""
    size = {"width": request.param, "height": 900, "deviceScaleFactor": 1, "mobile": request.param < 640}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    path = tmp_path / "hanging.html"
    path.write_text(page(HANGING), encoding="utf-8")
    browser.get(path.as_uri())
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("hanging", [420, 1200], indirect=True)
def test_a_transaction_without_records_is_its_marker(hanging: webdriver.Chrome) -> None:
    [marker] = bars(hanging, ".only-marker")
    assert width(marker) == 4
    stable = float(hanging.find_element(By.CSS_SELECTOR, "#lanes line.stable").get_attribute("x1") or 0)
    assert float(marker.get_attribute("x") or 0) > stable
    assert "blocking" not in (marker.get_attribute("class") or "")
    ActionChains(hanging).move_to_element(marker).perform()
    assert "first offset no records" in tip(hanging)


@pytest.mark.parametrize("hanging", [420, 1200], indirect=True)
def test_what_hangs_is_a_card_with_the_command_to_copy(hanging: webdriver.Chrome) -> None:
    card = hanging.find_element(By.CSS_SELECTOR, "section.findings")
    assert card.text.startswith("It hangs: its coordinator has no open transaction with this partition")
    command = HANGING.commands.abort(TP, 500, commit=True)
    assert card.find_element(By.TAG_NAME, "code").text.split() == command.split()
    # A browser may break a line at each hyphen, but not in a box.
    boxes = card.find_elements(By.CSS_SELECTOR, "code span")
    assert [each.text for each in boxes] == command.split()
    assert {each.value_of_css_property("display") for each in boxes} == {"inline-block"}
    assert card.find_element(By.TAG_NAME, "button").get_attribute("data-copy") == command
    summary = hanging.find_element(By.ID, "summary").text
    assert summary.endswith(f"It is the transaction of '{LONG_ID}' (producer id 3, epoch 4).")
    assert "blocks readers" in [each.text for each in hanging.find_elements(By.CSS_SELECTOR, ".bar .key")]


@pytest.mark.parametrize("hanging", [420], indirect=True)
def test_on_a_narrow_page_nothing_is_cut_and_nothing_needs_a_hover(hanging: webdriver.Chrome) -> None:
    cut = hanging.execute_script(
        "return [...document.querySelectorAll('body *')].filter(each => { const box = each.getBoundingClientRect();"
        " return !each.closest('defs, .defs, #tip, g') && box.width && (box.left < -1 || box.right > 421); })"
        ".map(each => each.outerHTML.slice(0, 80))"
    )
    assert cut == []
    lines = [each.get_attribute("textContent") for each in hanging.find_elements(By.CSS_SELECTOR, "#lanes text")]
    titles = {each.get_attribute("textContent") for each in hanging.find_elements(By.CSS_SELECTOR, "#lanes title")}
    # Each line of a label has the whole name as its title, and the lines together are the name.
    assert LONG_ID in titles
    assert "".join(each.removeprefix(LONG_ID) for each in lines if each and each.startswith(LONG_ID)) == LONG_ID
    row = hanging.find_element(By.CSS_SELECTOR, "#opened tr:nth-child(2)").text
    assert row == f"{LONG_ID} 3 4 500 300 first record dated 5 s ago CompleteCommit"
    hanging.execute_script("document.querySelector('.blocking').scrollIntoView()")
    ActionChains(hanging).move_to_element(bars(hanging, ".blocking")[0]).click().perform()
    assert "blocks the last stable offset" in tip(hanging)
    assert "hover" not in hanging.find_element(By.ID, "hint").text
