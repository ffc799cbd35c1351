"""The wire's part of an API: its messages, its versions, and how an error of the whole request is answered."""

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple

from broker_core.wire import messages as m

SASL_HANDSHAKE_KEY = int(m.SaslHandshakeRequest.API_KEY)
SASL_AUTHENTICATE_KEY = int(m.SaslAuthenticateRequest.API_KEY)


class Echo(NamedTuple):
    """The items of a request's array that an array of an error response repeats.

    `asked` may name the arrays of an array's items, as `outer.inner`. `names` gives for a field of the answer the field
    of the request that it repeats, "" for the item itself; fields of the same name are repeated anyway.
    """

    asked: str
    answered: str
    names: Mapping[str, str] = {}
    inner: "tuple[Echo, ...]" = ()


def echo(asked: str, answered: str = "", *inner: Echo, **names: str) -> Echo:
    """Return an echo; both arrays have one name unless `answered` is given."""
    return Echo(asked, answered or asked, names, inner)


PARTITIONS: Final = echo("partitions")
TOPICS: Final = echo("topics", "topics", PARTITIONS)
INDEXES: Final = echo("partition_indexes", "partitions", partition_index="")


class Secrets(Enum):
    """The message of an API that can contain passwords, tokens and the like."""

    NONE = "none"
    ASKED = "the request"
    ANSWERED = "the response"
    # The settings of brokers include passwords of key stores; settings of other resources do not.
    OF_BROKERS = "a request about the settings of brokers"


class ServedApi(NamedTuple):
    """One served API; versions are inclusive, `advertised_min` is what ApiVersions answers.

    An error of the whole request is answered with one code for each of the request's items that `echoes` lists, and in
    `unspecific` versions, or without echoes, with the code at the top alone.
    """

    # Kafka's number of the API.
    key: int
    name: str
    request: Any
    response: Any
    min_version: int
    max_version: int
    advertised_min: int
    echoes: tuple[Echo, ...] = ()
    unspecific: range = range(0)
    secrets: Secrets = Secrets.NONE

    def advertised(self) -> m.ApiVersionsResponse.ApiVersion:
        """Return its entry in an ApiVersions response; never change it."""
        return _advertised(self.key, self.advertised_min, self.max_version)


@cache
def _advertised(key: int, min_version: int, max_version: int) -> m.ApiVersionsResponse.ApiVersion:
    return m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=min_version, max_version=max_version)
