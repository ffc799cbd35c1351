"""Searches in responses of any API."""

from collections.abc import Iterator
from typing import Any


def error_codes(message: Any) -> Iterator[int]:
    """Return every error code in a response, at any depth."""
    if hasattr(message, "to_dict"):
        message = message.to_dict()
    if isinstance(message, dict):
        for key, value in message.items():
            if key.endswith("error_code"):
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(message, list):
        for value in message:
            yield from error_codes(value)
