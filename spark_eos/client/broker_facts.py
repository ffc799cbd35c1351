"""The versions that every broker supports, and its settings."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import AddPartitionsToTxnRequest

from broker_core.errors import ErrorCode
from spark_eos.client.error_table import Api, failure
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.response_reader import only_part
from spark_eos.client.topics import ConfigResourceType
from spark_eos.errors import EosKafkaError

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
    """Query brokers, all at once and once each; one that does not respond in time is left out."""
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


def versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="spark-eos", client_software_version="1")


def _settings_request(node_id: int, settings: Collection[str]) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=int(ConfigResourceType.BROKER), resource_name=str(node_id), configuration_keys=list(settings)
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
