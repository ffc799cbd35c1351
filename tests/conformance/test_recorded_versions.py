"""The recorded versions of Kafka, by which `kafka_version` limits the broker, are those of a broker that runs."""

import json

from kafka.protocol.metadata import ApiVersionsRequest

from tests.support.apache_kafka import kafka_version
from tests.support.both_brokers import Kafka
from tests.support.raw_client import RawClient
from tests.support.recorded_api_versions import FILE

# Advertised from 0 although 3 is the first version that is served (KAFKA-18659).
PRODUCE = 0
# Left out without a plugin that receives clients' metrics.
TELEMETRY = {71, 72}


def test_advertised_versions_are_the_recorded_ones(kafka: Kafka, client: RawClient):
    recorded = json.loads(FILE.read_text(encoding="utf-8"))[kafka_version().rpartition(".")[0]]["apis"]
    answer = client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    advertised = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys if api.api_key != PRODUCE}
    known = {int(key): tuple(found) for key, found in recorded.items() if int(key) != PRODUCE}
    if kafka.name == "apache":
        assert advertised == {key: found for key, found in known.items() if key not in TELEMETRY}
    else:
        assert [key for key, (_, high) in advertised.items() if high > known[key][1]] == []
