"""The APIs of Kafka that the sink and the source need, and what is missing where a service does not support one.

docs/deploy/managed-kafka.md shows this table, and tests take one API after the other from a broker.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from broker_core.errors import ErrorCode
from spark_eos.client.error_table import Api, failure
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import BrokerAddress, versions_request
from spark_eos.client.response_reader import only_part
from spark_eos.client.topics import ConfigResourceType
from spark_eos.client.transactions import TV2
from spark_eos.errors import EosKafkaError, UnsupportedError

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
            found[node_id] = _facts(node_id, _answered(versions), _answered(configs))
        except EosKafkaError as trouble:
            logger.info("broker %d does not report its versions and settings: %s", node_id, trouble)
    return found


def _answered(answer: Answer | EosKafkaError) -> Answer:
    if isinstance(answer, EosKafkaError):
        raise answer
    return answer


def _facts(node_id: int, versions: ApiVersionsResponse, configs: DescribeConfigsResponse) -> BrokerFacts:
    answer, api = only_part(configs.results, "DescribeConfigs"), Api.DESCRIBE_CONFIGS
    code, detail = answer.error_code, answer.error_message or ""
    return BrokerFacts(
        next((each.max_version for each in versions.api_keys if each.api_key == AddPartitionsToTxnRequest.API_KEY), -1),
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


SINK_APIS: Final = (
    NeededApi(MetadataRequest, 4, "0.11", "topics, partitions and brokers"),
    NeededApi(FindCoordinatorRequest, 1, "0.11", "coordinators of transactions and groups"),
    NeededApi(InitProducerIdRequest, 0, "0.11", "producer ids and epochs, and to fence other drivers"),
    NeededApi(ProduceRequest, 3, "0.11", "rows and decisions"),
    NeededApi(AddOffsetsToTxnRequest, 0, "0.11", "decisions, below transactions V2", last_level=TV2 - 1),
    NeededApi(TxnOffsetCommitRequest, 0, "0.11", "the pointer to the newest decision"),
    NeededApi(EndTxnRequest, 0, "0.11", "the end of transactions"),
    NeededApi(DescribeTransactionsRequest, 0, "3.0", "verification before a decision, and recovery"),
    NeededApi(OffsetFetchRequest, 7, "2.5", "the pointer to the newest decision"),
    NeededApi(ListOffsetsRequest, 2, "0.11", "recovery, and decisions without a pointer"),
    NeededApi(FetchRequest, 4, "0.11", "decisions of earlier runs, and recovery"),
    NeededApi(
        AddPartitionsToTxnRequest,
        4,
        "3.6",
        "brokers that verify transactions; version 4 shows that they can",
        "refused, unless `allowHangingTransactions=true`",
    ),
    NeededApi(
        ListTransactionsRequest,
        0,
        "3.0",
        "the sweep of transactions that lost tasks leave open",
        "they end at their timeout; a warning is logged at the start",
    ),
    NeededApi(
        DescribeProducersRequest,
        0,
        "2.8",
        "records that a partition lost before the commit, after an election",
        "such a loss is not noticed",
    ),
    NeededApi(
        DescribeConfigsRequest,
        1,
        "1.1",
        "the longest timeout, verification, and the decision topic's settings",
        "the timeout is 60 s, and the settings are not checked",
    ),
    NeededApi(
        CreateTopicsRequest, 4, "2.4", "a decision topic that does not exist", "the error has the command to create it"
    ),
)
SOURCE_APIS: Final = (
    NeededApi(MetadataRequest, 4, "0.11", "topics, partitions and brokers"),
    NeededApi(ListOffsetsRequest, 2, "0.11", "first and last offsets, and offsets by time"),
    NeededApi(FetchRequest, 4, "0.11", "records"),
    NeededApi(
        OffsetForLeaderEpochRequest,
        2,
        "2.1",
        "truncated logs after an unclean election",
        "truncated logs are not noticed",
    ),
    NeededApi(
        DescribeProducersRequest,
        0,
        "2.8",
        "the producer that delays the query",
        "the warning does not name the transaction",
    ),
    NeededApi(ListTransactionsRequest, 0, "3.0", "its transactional id", "the warning does not name the transaction"),
    NeededApi(
        DescribeTransactionsRequest,
        0,
        "3.0",
        "the state of its transaction",
        "the warning does not name the transaction",
    ),
    NeededApi(
        OffsetCommitRequest, 2, "0.9", "`commitOffsetsToGroup`", "progress is not committed, and a warning is logged"
    ),
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
    return {
        broker: answer if isinstance(answer, EosKafkaError) else _unsupported(answer)
        for broker, answer in client.ask_each_broker(versions_request).items()
    }


def _unsupported(versions: ApiVersionsResponse) -> list[NeededApi]:
    newest = {each.api_key: each.max_version for each in versions.api_keys}
    # What the sink cannot do without counts, where both need an API.
    by_name = {api.name: api for api in (*SOURCE_APIS, *SINK_APIS)}
    return [api for api in by_name.values() if newest.get(int(api.request.API_KEY), -1) < api.version]
