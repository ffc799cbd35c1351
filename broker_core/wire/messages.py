"""Kafka's messages, of kafka-python and ours; other packages import them from here.

A class is made from Kafka's own schema at run time: it is built with keyword arguments named after the schema's fields
in snake case, and encoded for the version of the request it answers. A field that is not given, or that a request's
version does not have, has the schema's default; all messages share it, so a list is never changed in place.
`messages.pyi` lists classes and fields.
"""

import types
from importlib.resources import files
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin import *  # noqa: F403
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import *  # noqa: F403
from kafka.protocol.data_container import DataContainer
from kafka.protocol.metadata import *  # noqa: F403
from kafka.protocol.metadata import ApiVersionsResponse as _ApiVersionsResponse
from kafka.protocol.producer import *  # noqa: F403
from kafka.protocol.sasl import *  # noqa: F403

NULL_UUID: Final = UUID(int=0)
# The header of this response never has tagged fields, which kafka-python's class knows.
_BASES: Final = {"ApiVersionsResponse": _ApiVersionsResponse}


def _message(name: str) -> Any:
    base = _BASES.get(name, ApiMessage)
    return types.new_class(
        name, (base,), {"load_json": __package__}, lambda body: body.update(__module__=__name__, __qualname__=name)
    )


# Our schemas: kafka-python lacks these messages, or their newest version. Its clients in the same process read answers
# with these classes.
for _name in sorted(each.name.removesuffix(".json") for each in files(__package__).iterdir()):
    if _name.endswith(("Request", "Response")):
        globals()[_name] = _message(_name)
