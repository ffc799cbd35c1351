"""The pages: their addresses, and their HTML: one shell, the data as JSON in it, and static files."""

import html
import re
from collections import defaultdict
from importlib import resources
from typing import Any, Final
from urllib.parse import urlencode

from spark_eos.admin.timeline_page import asset as timeline_asset
from spark_eos.admin.timeline_page import json_for_html

ASSETS: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "pages.js": "text/javascript; charset=utf-8",
    "timeline.css": "text/css; charset=utf-8",
    "timeline.js": "text/javascript; charset=utf-8",
}
_PLACEHOLDER: Final = re.compile("@(TITLE|LABEL|KIND|DATA|PICTURE|TIMELINE)@")
_LABELS: Final = {"partition": "Partition", "transaction": "Transactional id", "query": "Query of the sink"}


class LiveLinks:
    """The addresses under which the server has every page, relative to the overview."""

    def page(self, kind: str, **names: object) -> str | None:
        """Return the address of the page of that kind for what the names name; None where there is none."""
        return f"{kind}?{urlencode(names)}"


class FileLinks(LiveLinks):
    """The files of a folder, by kind and names; only as many pages of a kind as fit have one."""

    def __init__(self, most_pages: int) -> None:
        self.files: defaultdict[str, dict[tuple[Any, ...], str]] = defaultdict(dict)
        self.most = most_pages

    def page(self, kind: str, **names: object) -> str | None:
        files, name = self.files[kind], tuple(names.values())
        if name not in files and len(files) < self.most:
            # Numbers: names of topics and ids may contain anything.
            files[name] = f"{kind}-{len(files) + 1}.html"
        return files.get(name)


def asset(name: str) -> str:
    if name in ("timeline.css", "timeline.js"):
        return timeline_asset(name)
    return resources.files("spark_eos.admin.console").joinpath("assets", name).read_text(encoding="utf-8")


def page(kind: str, title: str, document: dict[str, Any]) -> str:
    """Return a page; its data cannot end the element that it is in, and becomes text in the browser, never HTML."""
    is_timeline = kind == "partition"
    parts = {
        "TITLE": html.escape(title),
        "LABEL": _LABELS.get(kind, ""),
        "KIND": html.escape(kind),
        "DATA": json_for_html(document),
        "PICTURE": timeline_asset("timeline_picture.html") if is_timeline else "",
        "TIMELINE": '<script src="assets/timeline.js"></script>\n' if is_timeline else "",
    }
    return _PLACEHOLDER.sub(lambda found: parts[found[1]], asset("page.html"))
