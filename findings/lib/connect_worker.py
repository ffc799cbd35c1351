"""Requests to a worker of Kafka Connect, for the scripts with lib/connect.sh."""

import json
import urllib.error
import urllib.request


def ask(url, method="GET", body=None):
    """Return the worker's answer, None while it has none."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.loads(answer.read() or "{}")
    except (urllib.error.URLError, ConnectionError):
        return None
