"""The served APIs and their versions.

There is one row for each API; others are neither advertised nor decoded. Ranges are those of Apache
Kafka 4.4 as far as they are implemented (rules J.1). Produce is advertised from 0 although 0-2 are refused, as
in Kafka since KAFKA-18659: with a higher minimum, some librdkafka versions assume that it cannot produce.
"""

from difflib import get_close_matches
from typing import Any, NamedTuple

from broker_core.types import check_text
from broker_core.wire import messages as m


class ServedApi(NamedTuple):
    """One served API; versions are inclusive, `advertised_min` is what ApiVersions answers."""

    # Kafka's number of the API.
    key: int
    name: str
    request: Any
    response: Any
    min_version: int
    max_version: int
    advertised_min: int

    def advertised(self) -> Any:
        """Return its entry in an ApiVersions response."""
        return m.ApiVersionsResponse.ApiVersion(
            api_key=self.key, min_version=self.advertised_min, max_version=self.max_version
        )


def _api(request: Any, response: Any, low: int, high: int, advertised_min: int | None = None) -> ServedApi:
    name = str(request.name).removesuffix("Request")
    advertised = low if advertised_min is None else advertised_min
    return ServedApi(int(request.API_KEY), name, request, response, low, high, advertised)


_ROWS = (
    _api(m.ProduceRequest, m.ProduceResponse, 3, 13, advertised_min=0),
    _api(m.FetchRequest, m.FetchResponse, 4, 18),
    _api(m.ListOffsetsRequest, m.ListOffsetsResponse, 1, 11),
    _api(m.MetadataRequest, m.MetadataResponse, 0, 13),
    _api(m.OffsetCommitRequest, m.OffsetCommitResponse, 2, 10),
    _api(m.OffsetFetchRequest, m.OffsetFetchResponse, 1, 10),
    _api(m.FindCoordinatorRequest, m.FindCoordinatorResponse, 0, 6),
    _api(m.JoinGroupRequest, m.JoinGroupResponse, 0, 9),
    _api(m.HeartbeatRequest, m.HeartbeatResponse, 0, 4),
    _api(m.LeaveGroupRequest, m.LeaveGroupResponse, 0, 5),
    _api(m.SyncGroupRequest, m.SyncGroupResponse, 0, 5),
    _api(m.DescribeGroupsRequest, m.DescribeGroupsResponse, 0, 6),
    _api(m.ListGroupsRequest, m.ListGroupsResponse, 0, 5),
    _api(m.SaslHandshakeRequest, m.SaslHandshakeResponse, 0, 1),
    _api(m.ApiVersionsRequest, m.ApiVersionsResponse, 0, 5),
    _api(m.CreateTopicsRequest, m.CreateTopicsResponse, 2, 7),
    _api(m.DeleteTopicsRequest, m.DeleteTopicsResponse, 1, 6),
    _api(m.DeleteRecordsRequest, m.DeleteRecordsResponse, 0, 2),
    # Version 6 is KIP-939, unfinished in every release: a normal broker stops at 5.
    _api(m.InitProducerIdRequest, m.InitProducerIdResponse, 0, 5),
    _api(m.OffsetForLeaderEpochRequest, m.OffsetForLeaderEpochResponse, 2, 4),
    _api(m.AddPartitionsToTxnRequest, m.AddPartitionsToTxnResponse, 0, 5),
    _api(m.AddOffsetsToTxnRequest, m.AddOffsetsToTxnResponse, 0, 4),
    _api(m.EndTxnRequest, m.EndTxnResponse, 0, 5),
    _api(m.WriteTxnMarkersRequest, m.WriteTxnMarkersResponse, 1, 2),
    _api(m.TxnOffsetCommitRequest, m.TxnOffsetCommitResponse, 0, 6),
    _api(m.DescribeAclsRequest, m.DescribeAclsResponse, 1, 3),
    _api(m.CreateAclsRequest, m.CreateAclsResponse, 1, 3),
    _api(m.DeleteAclsRequest, m.DeleteAclsResponse, 1, 3),
    _api(m.DescribeConfigsRequest, m.DescribeConfigsResponse, 1, 4),
    _api(m.AlterConfigsRequest, m.AlterConfigsResponse, 0, 2),
    _api(m.AlterReplicaLogDirsRequest, m.AlterReplicaLogDirsResponse, 1, 2),
    _api(m.DescribeLogDirsRequest, m.DescribeLogDirsResponse, 1, 5),
    _api(m.SaslAuthenticateRequest, m.SaslAuthenticateResponse, 0, 2),
    _api(m.CreatePartitionsRequest, m.CreatePartitionsResponse, 0, 3),
    _api(m.CreateDelegationTokenRequest, m.CreateDelegationTokenResponse, 1, 3),
    _api(m.RenewDelegationTokenRequest, m.RenewDelegationTokenResponse, 1, 2),
    _api(m.ExpireDelegationTokenRequest, m.ExpireDelegationTokenResponse, 1, 2),
    _api(m.DescribeDelegationTokenRequest, m.DescribeDelegationTokenResponse, 1, 3),
    _api(m.DeleteGroupsRequest, m.DeleteGroupsResponse, 0, 3),
    _api(m.ElectLeadersRequest, m.ElectLeadersResponse, 0, 2),
    _api(m.IncrementalAlterConfigsRequest, m.IncrementalAlterConfigsResponse, 0, 1),
    _api(m.AlterPartitionReassignmentsRequest, m.AlterPartitionReassignmentsResponse, 0, 1),
    _api(m.ListPartitionReassignmentsRequest, m.ListPartitionReassignmentsResponse, 0, 0),
    _api(m.OffsetDeleteRequest, m.OffsetDeleteResponse, 0, 0),
    _api(m.DescribeUserScramCredentialsRequest, m.DescribeUserScramCredentialsResponse, 0, 0),
    _api(m.AlterUserScramCredentialsRequest, m.AlterUserScramCredentialsResponse, 0, 0),
    _api(m.DescribeClientQuotasRequest, m.DescribeClientQuotasResponse, 0, 1),
    _api(m.AlterClientQuotasRequest, m.AlterClientQuotasResponse, 0, 1),
    _api(m.DescribeQuorumRequest, m.DescribeQuorumResponse, 0, 2),
    _api(m.UpdateFeaturesRequest, m.UpdateFeaturesResponse, 0, 2),
    _api(m.DescribeClusterRequest, m.DescribeClusterResponse, 0, 2),
    _api(m.UnregisterBrokerRequest, m.UnregisterBrokerResponse, 0, 0),
    _api(m.DescribeProducersRequest, m.DescribeProducersResponse, 0, 0),
    _api(m.DescribeTransactionsRequest, m.DescribeTransactionsResponse, 0, 0),
    _api(m.ConsumerGroupHeartbeatRequest, m.ConsumerGroupHeartbeatResponse, 0, 1),
    _api(m.ConsumerGroupDescribeRequest, m.ConsumerGroupDescribeResponse, 0, 1),
    _api(m.ListTransactionsRequest, m.ListTransactionsResponse, 0, 2),
    _api(m.ListConfigResourcesRequest, m.ListConfigResourcesResponse, 0, 1),
    _api(m.DescribeTopicPartitionsRequest, m.DescribeTopicPartitionsResponse, 0, 0),
    _api(m.ShareGroupHeartbeatRequest, m.ShareGroupHeartbeatResponse, 1, 1),
    _api(m.ShareGroupDescribeRequest, m.ShareGroupDescribeResponse, 1, 1),
    _api(m.ShareFetchRequest, m.ShareFetchResponse, 1, 2),
    _api(m.ShareAcknowledgeRequest, m.ShareAcknowledgeResponse, 1, 2),
    _api(m.InitializeShareGroupStateRequest, m.InitializeShareGroupStateResponse, 0, 0),
    _api(m.ReadShareGroupStateRequest, m.ReadShareGroupStateResponse, 0, 0),
    _api(m.WriteShareGroupStateRequest, m.WriteShareGroupStateResponse, 0, 1),
    _api(m.DeleteShareGroupStateRequest, m.DeleteShareGroupStateResponse, 0, 0),
    _api(m.ReadShareGroupStateSummaryRequest, m.ReadShareGroupStateSummaryResponse, 0, 1),
    _api(m.DescribeShareGroupOffsetsRequest, m.DescribeShareGroupOffsetsResponse, 0, 1),
    _api(m.AlterShareGroupOffsetsRequest, m.AlterShareGroupOffsetsResponse, 0, 0),
    _api(m.DeleteShareGroupOffsetsRequest, m.DeleteShareGroupOffsetsResponse, 0, 0),
)

SERVED: dict[int, ServedApi] = {api.key: api for api in _ROWS}
SASL_HANDSHAKE_KEY = int(m.SaslHandshakeRequest.API_KEY)
SASL_AUTHENTICATE_KEY = int(m.SaslAuthenticateRequest.API_KEY)
_NAMES = frozenset(api.name for api in _ROWS)


def check_api(name: str) -> None:
    """Raise ValueError, with the most similar name, for an API that is not served."""
    check_text("api", name)
    if name not in _NAMES:
        near = get_close_matches(name, _NAMES, n=1)
        guess = f"did you mean {near[0]!r}? There are" if near else "there are"
        raise ValueError(f"api={name!r} is not served; {guess} {', '.join(sorted(_NAMES))}")
