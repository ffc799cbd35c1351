"""The creation of topics, and their configuration."""

from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from typing import Final

from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)

from broker_core.errors import ErrorCode
from spark_eos.client.coordinator_requests import RESENT
from spark_eos.client.error_table import Api, classify, explained, failure
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.response_reader import asked_part
from spark_eos.errors import EosKafkaError, UnansweredError

BROKER_DEFAULT: Final = -1
_FIRST_DEFAULTS_VERSION: Final = 4


class ConfigResourceType(IntEnum):
    """The kind of resource that a configuration belongs to."""

    TOPIC = 2
    BROKER = 4


def create_topic(
    client: KafkaClient,
    name: str,
    *,
    partition_count: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    config: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> bool:
    """Create a topic; return True if this call created it, False if it existed. -1 leaves a number to the broker.

    With `validate_only` nothing is created: the broker checks the request and the right to make it.
    """
    deadline = client.deadline()
    topic_class = CreateTopicsRequest.CreatableTopic
    settings = [topic_class.CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
    topic = topic_class(
        name=name, num_partitions=partition_count, replication_factor=replication_factor, configs=settings
    )
    make = partial(
        CreateTopicsRequest,
        topics=[topic],
        timeout_ms=client.options.request_timeout_ms,
        validate_only=validate_only,
        min_version=_FIRST_DEFAULTS_VERSION,
    )
    trouble: EosKafkaError
    for _ in client.attempts(deadline):
        try:
            response = client.send(None, make(), timeout_ms=client.remaining_ms(deadline))
            answer = asked_part(response.topics, lambda each: each.name == name, "CreateTopics")
        except UnansweredError as error:
            trouble = error
            continue
        if answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return answer.error_code == ErrorCode.NONE
        trouble = _passing(Api.CREATE_TOPICS, answer, name)
    raise trouble


def _passing(
    api: Api,
    answer: CreateTopicsResponse.CreatableTopicResult | DescribeConfigsResponse.DescribeConfigsResult,
    name: str,
) -> UnansweredError:
    """Return the error in case no better answer comes; raise at once for a code that another attempt cannot change."""
    detail = answer.error_message or ""
    if classify(api, answer.error_code) not in RESENT:
        raise failure(api, answer.error_code, f"topic '{name}'", detail=detail)
    return UnansweredError(
        f"{api.value} for topic '{name}' did not complete in time",
        checked=f"Last response: {explained(api, answer.error_code)} {detail}".strip(),
        error_code=answer.error_code,
    )


def describe_topic_config(client: KafkaClient, topic: str, *, timeout_ms: float | None = None) -> dict[str, str | None]:
    """Read all settings of a topic, defaults included; secrets are None."""
    deadline = client.deadline(timeout_ms)
    trouble: EosKafkaError
    for _ in client.attempts(deadline):
        try:
            resource = DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=int(ConfigResourceType.TOPIC), resource_name=topic, configuration_keys=None
            )
            request = DescribeConfigsRequest(resources=[resource], min_version=1)
            response = client.send(None, request, timeout_ms=client.remaining_ms(deadline))
            result = asked_part(response.results, lambda each: each.resource_name == topic, "DescribeConfigs")
        except UnansweredError as error:
            trouble = error
            continue
        if result.error_code == ErrorCode.NONE:
            return {each.name: each.value for each in result.configs}
        trouble = _passing(Api.DESCRIBE_CONFIGS, result, topic)
    raise trouble
