"""Headless Chromium, driven by Selenium."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver

MISSING = "needs Chromium and its driver (Debian's packages chromium and chromium-driver)"


def has_chromium() -> bool:
    """Return whether this machine has Chromium and its driver."""
    return None not in (shutil.which("chromium"), shutil.which("chromedriver"))


@contextmanager
def chromium(width: int = 1400, height: int = 900, scale: float = 1) -> Iterator[webdriver.Chrome]:
    """Run a browser without a window, with a profile of its own and light colors.

    Args:
        width: The width of the page in CSS pixels.
        height: The height of the page in CSS pixels.
        scale: The number of pixels of a screenshot for each CSS pixel.
    """
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        raise FileNotFoundError(MISSING)
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--window-size={width},{height}",
            f"--force-device-scale-factor={scale}",
            f"--user-data-dir={profile}",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            yield chrome
        finally:
            chrome.quit()
