"""The APIs of Kafka that the sink and the source need, and what is missing where a service does not support one.

docs/deploy/managed-kafka.md shows this table, and tests take one API after the other from a broker.
"""

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.producer import AddPartitionsToTxnRequest

from broker_core.errors import ErrorCode
from spark_eos.client.error_table import Api, code_name, failure
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import BrokerAddress, versions_request
from spark_eos.client.response_reader import asked_part
from spark_eos.client.topics import ConfigResourceType
from spark_eos.client.transactions import TV2
from spark_eos.errors import EosKafkaError, UnansweredError, UnsupportedError

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiMessage

Answer = TypeVar("Answer")

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What one broker has reported about itself.

    `add_partitions_version` is the highest version of AddPartitionsToTxn that it supports, -1 for none. `settings` has
    the requested settings that the broker knows; if they cannot be read it is empty, and `trouble` has the reason.
    """

    add_partitions_version: int
    settings: Mapping[str, str | None]
    trouble: EosKafkaError | None = None


def ask_brokers(
    client: KafkaClient, node_ids: Collection[int], settings: Collection[str], *, timeout_ms: float
) -> dict[int, BrokerFacts]:
    asked = sorted(node_ids)
    about_versions = [(node_id, versions_request()) for node_id in asked]
    about_settings = [(node_id, _settings_request(node_id, settings)) for node_id in asked]
    answers: list[Any] = client.send_all([*about_versions, *about_settings], timeout_ms=timeout_ms) if asked else []
    found: dict[int, BrokerFacts] = {}
    for node_id, versions, configs in zip(asked, answers[: len(asked)], answers[len(asked) :], strict=True):
        try:
            found[node_id] = _facts(node_id, _newest(versions), _answered(configs))
        except EosKafkaError as trouble:
            logger.info("broker %d does not report its versions and settings: %s", node_id, trouble)
    return found


def _answered(answer: Answer | EosKafkaError) -> Answer:
    if isinstance(answer, EosKafkaError):
        raise answer
    return answer


def _newest(answer: ApiVersionsResponse | EosKafkaError) -> dict[int, int]:
    """Return the newest version of each API that a broker serves; raise if its answer does not say."""
    versions = _answered(answer)
    if versions.error_code != ErrorCode.NONE:
        raise UnansweredError(
            f"ApiVersions was refused with {code_name(versions.error_code)}", error_code=versions.error_code
        )
    if not versions.api_keys:
        raise UnansweredError("An answer to ApiVersions names no API")
    return {each.api_key: each.max_version for each in versions.api_keys}


def _facts(node_id: int, newest: Mapping[int, int], configs: DescribeConfigsResponse) -> BrokerFacts:
    api = Api.DESCRIBE_CONFIGS
    answer = asked_part(configs.results, lambda each: each.resource_name == str(node_id), api.value)
    code, detail = answer.error_code, answer.error_message or ""
    return BrokerFacts(
        newest.get(AddPartitionsToTxnRequest.API_KEY, -1),
        {each.name: each.value for each in answer.configs} if code == ErrorCode.NONE else {},
        None if code == ErrorCode.NONE else failure(api, code, f"broker '{node_id}'", detail=detail),
    )


def _settings_request(node_id: int, settings: Collection[str]) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=int(ConfigResourceType.BROKER), resource_name=str(node_id), configuration_keys=list(settings)
    )
    return DescribeConfigsRequest(resources=[resource])


class NeededApi(NamedTuple):
    """An API, its first version that is good enough, its use, and what happens without it.

    `without` is empty if the query stops. `last_level` is the last `transaction.version` at which it is used.
    """

    request: "type[ApiMessage]"
    version: int
    kafka: str
    use: str
    without: str = ""
    last_level: int = TV2

    @property
    def name(self) -> str:
        return str(self.request.name).removesuffix("Request")


def _request(name: str) -> "type[ApiMessage]":
    found: Iterator[type[ApiMessage] | None] = (vars(module).get(f"{name}Request") for module in _MODULES)
    return next(each for each in found if each is not None)


_MODULES: Final = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer)
_ROWS: Final = json.loads(files(__package__).joinpath("needed_apis.json").read_text("utf-8"))
SINK_APIS, SOURCE_APIS = (
    tuple(NeededApi(_request(row.pop("api")), **row) for row in _ROWS[side]) for side in ("sink", "source")
)


def check_sink_apis(client: KafkaClient, transaction_version: int) -> None:
    """Raise `UnsupportedError` if the connected broker lacks an API that every query needs; sends no request."""
    missing = []
    for api in SINK_APIS:
        if not api.without and transaction_version <= api.last_level:
            try:
                client.api_version(api.request, min_version=api.version)
            except UnsupportedError:
                missing.append(api)
    if missing:
        raise UnsupportedError(
            f"The brokers do not support {', '.join(f'{each.name} version {each.version}' for each in missing)}",
            checked="ApiVersions of the broker that the client is connected to; the sink uses "
            + "; ".join(f"{each.name} for {each.use}" for each in missing),
            remedy="Use brokers of Apache Kafka 3.6 or newer, or a service that supports these APIs",
        )


def unsupported_apis(client: KafkaClient) -> dict[BrokerAddress, list[NeededApi] | EosKafkaError]:
    """Return for each broker the APIs of both tables that it does not support, or why it is silent."""
    found: dict[BrokerAddress, list[NeededApi] | EosKafkaError] = {}
    for broker, answer in client.ask_each_broker(versions_request).items():
        try:
            found[broker] = _unsupported(_newest(answer))
        except EosKafkaError as error:
            found[broker] = error
    return found


def _unsupported(newest: Mapping[int, int]) -> list[NeededApi]:
    # What the sink cannot do without counts, where both need an API.
    by_name = {api.name: api for api in (*SOURCE_APIS, *SINK_APIS)}
    return [api for api in by_name.values() if newest.get(int(api.request.API_KEY), -1) < api.version]
