"""The names that topics can have."""

import re

from broker_core.errors import ErrorCode, KafkaError

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_NAME = 249


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for an invalid topic name, with Kafka's message."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > _LONGEST_NAME:
        problem = f"the length of '{name}' is longer than the max allowed length {_LONGEST_NAME}"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
