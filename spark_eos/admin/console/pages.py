"""The HTML of the pages: one shell, the data as JSON in it, and static files for looks and behavior."""

import html
import re
from importlib import resources
from typing import Any, Final

from spark_eos.admin.timeline_page import asset as timeline_asset
from spark_eos.admin.timeline_page import json_for_html

ASSETS: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "pages.js": "text/javascript; charset=utf-8",
    "timeline.css": "text/css; charset=utf-8",
    "timeline.js": "text/javascript; charset=utf-8",
}
_SHARED: Final = ("timeline.css", "timeline.js")
_PLACEHOLDER: Final = re.compile("@(TITLE|LABEL|KIND|DATA|PICTURE|TIMELINE)@")
_LABELS: Final = {"partition": "Partition", "transaction": "Transactional id", "query": "Query of the sink"}
_TIMELINE: Final = '<script src="assets/timeline.js"></script>\n'


def asset(name: str) -> str:
    """Return a static file."""
    if name in _SHARED:
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
        "TIMELINE": _TIMELINE if is_timeline else "",
    }
    return _PLACEHOLDER.sub(lambda found: parts[found[1]], asset("page.html"))
