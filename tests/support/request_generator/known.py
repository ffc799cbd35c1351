"""The differences between the answers of both brokers that are known, each with its reason.

`docs/contributing/differences.md` shows this table; `python -m tests.support.request_generator.known` writes it there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.reference import table
from tests.support.request_generator.comparison import Difference

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "contributing" / "differences.md"
_BEGIN, _END = "<!-- generated: answers that differ -->\n", "<!-- end of answers that differ -->"
_CLIENTS_ERROR: Final = "it is the client's error"
_MUST_ANSWER: Final = "a client must not wait forever"


@dataclass(frozen=True)
class KnownDifference:
    """One difference: the fields and cases it is found in, as regular expressions, and its row in the document."""

    api: str
    path: str
    label: str
    request: str
    apache: str
    ours: str
    why: str
    # None for both.
    has_rights: bool | None = True
    # Whether it depends on the time that something takes on Apache Kafka.
    is_by_chance: bool = False

    def explains(self, found: Difference) -> bool:
        """Return whether the difference is this one."""
        return (
            found.case.step.api == self.api
            and self.has_rights in (None, found.case.has_rights)
            and re.fullmatch(self.path, found.path) is not None
            and re.fullmatch(self.label, found.case.label) is not None
        )


_SECOND_LIST: Final = r"topic_data=twice|.*partition_data=twice"

KNOWN: Final = (
    KnownDifference(
        "ApiVersions", "api_keys", ".*", "any", "all APIs", "the APIs of the next table are missing", "see there", None
    ),
    KnownDifference(
        "Metadata",
        ".*",
        "topics.name=null",
        "versions 12 and 13, neither name nor id",
        "UNKNOWN_SERVER_ERROR",
        "UNKNOWN_TOPIC_ID",
        _CLIENTS_ERROR,
    ),
    KnownDifference(
        "Produce",
        "responses.*",
        _SECOND_LIST,
        "a partition twice",
        "only the last batch is appended and answered",
        "both are appended and answered",
        "nothing is dropped without an error",
    ),
    KnownDifference("Produce", "", ".*records=null", "null records", "no answer", "INVALID_RECORD", _MUST_ANSWER),
    KnownDifference(
        "Fetch",
        "responses.*",
        ".*max_bytes=-.*",
        "negative byte limits",
        "UNKNOWN_SERVER_ERROR",
        "treated as 0",
        "the offsets are right, so the client can go on",
    ),
    KnownDifference(
        "Fetch",
        "error_code|responses.*",
        "isolation_level=.*",
        "an isolation level that does not exist",
        "UNKNOWN_SERVER_ERROR",
        "INVALID_REQUEST",
        _CLIENTS_ERROR,
    ),
    KnownDifference(
        "Fetch",
        "error_code|session_id|responses.*",
        "session_id=2147483647",
        "closes a session with an id that is never given out",
        "UNKNOWN_SERVER_ERROR",
        "answered without a session",
        "as for other sessions that do not exist",
    ),
    KnownDifference(
        "ListOffsets",
        ".*error_code",
        "isolation_level=.*",
        "an isolation level that does not exist",
        "UNKNOWN_SERVER_ERROR",
        "INVALID_REQUEST",
        _CLIENTS_ERROR,
    ),
    KnownDifference(
        "ShareFetch",
        "responses.*",
        # Apache Kafka answers the good request without the partition only if another fetch still reads it.
        r"group_id=.*|topics.partitions.partition_index=0|good",
        "a fetch without a wait, of a partition that is loaded or read by another fetch",
        "nothing yet",
        "the partition, with UNKNOWN_SERVER_ERROR if it has no state, as Kafka answers later",
        "loading and reading take no time",
    ),
    KnownDifference(
        "ShareFetch",
        "responses",
        "(min|max|batch)_.*",
        "a fetch without a wait, of a partition that the fetch before it still reads",
        "nothing yet, by chance",
        "the partition",
        "reading takes no time",
        is_by_chance=True,
    ),
    KnownDifference(
        "ShareFetch",
        "responses.partitions.error_code",
        "max_bytes=-.*",
        "negative byte limits",
        "UNKNOWN_SERVER_ERROR",
        "treated as 0",
        "as for Fetch",
    ),
    KnownDifference(
        "ShareFetch",
        "error_code",
        "share_acquire_mode=.*",
        "a mode that does not exist",
        "UNKNOWN_SERVER_ERROR",
        "INVALID_REQUEST",
        _CLIENTS_ERROR,
    ),
    KnownDifference(
        "ShareFetch",
        "error_code|acquisition_lock_timeout_ms|responses",
        ".*=twice",
        "a partition twice",
        "UNKNOWN_SERVER_ERROR",
        "fetched once",
        _CLIENTS_ERROR,
    ),
    *(
        KnownDifference(
            api,
            "error_code|acquisition_lock_timeout_ms|responses",
            "topics.topic_id=.*",
            "a topic id that does not exist",
            "UNKNOWN_SERVER_ERROR for the request",
            "UNKNOWN_TOPIC_ID for its partitions",
            "the others go on",
        )
        for api in ("ShareFetch", "ShareAcknowledge")
    ),
    KnownDifference(
        "ShareAcknowledge",
        ".*",
        "group_id=.*",
        "a session that is not the last one of a lost connection",
        "it stays",
        "it ends with its connection",
        "its member is gone",
    ),
    KnownDifference(
        "AlterShareGroupOffsets",
        "responses.partitions",
        ".*=twice",
        "a partition twice",
        "answered twice",
        "answered once",
        "it is changed once",
    ),
    KnownDifference(
        "AlterShareGroupOffsets",
        "error_code|error_message|responses",
        ".*partition_index=-.*",
        "a negative partition",
        "UNKNOWN_SERVER_ERROR for the request",
        "UNKNOWN_TOPIC_OR_PARTITION for it",
        "the others go on",
    ),
    KnownDifference(
        "DescribeShareGroupOffsets",
        "groups.topics.*|groups.error_(code|message)",
        ".*(group_id=empty|partitions=empty|partitions=negative)",
        "an empty group id, no partitions of a topic, or a negative partition",
        "UNKNOWN_SERVER_ERROR for the group",
        "no offsets",
        _CLIENTS_ERROR,
    ),
    KnownDifference(
        "DescribeShareGroupOffsets",
        "groups.topics.*",
        ".*=twice",
        "a topic or partition twice",
        "answered once",
        "answered twice",
        "as it was asked for",
    ),
    KnownDifference(
        "DescribeShareGroupOffsets",
        "",
        ".*partitions=(large|more)",
        "a partition that does not exist",
        "no answer",
        "no offset",
        _MUST_ANSWER,
    ),
    KnownDifference(
        "JoinGroup",
        ".*member_id|leader",
        "group_instance_id=empty",
        "an empty instance id",
        "the member id begins with -",
        "the member id begins with the client id",
        "an empty id is no id",
    ),
    KnownDifference(
        "JoinGroup",
        "protocol_name",
        "protocols.name=empty",
        "a protocol with an empty name",
        "a null name is chosen",
        "the empty name is chosen",
        "it is the member's",
    ),
    KnownDifference(
        "JoinGroup", "", "protocols=twice", "a protocol twice", "no answer", "the member joins", _MUST_ANSWER
    ),
    KnownDifference(
        "CreateTopics",
        "topics.configs.config_source",
        ".*",
        "any that succeeds",
        "min.insync.replicas is a setting of the cluster",
        "min.insync.replicas is a default",
        "eligible leader replicas do not exist here",
    ),
    KnownDifference(
        "OffsetForLeaderEpoch",
        "topics.partitions.(leader_epoch|end_offset)",
        ".*leader_epoch=-2",
        "leader epoch -2",
        "epoch -2 ends at the log start offset",
        "unknown, as for -1",
        "there is no such epoch",
    ),
    KnownDifference(
        "AddPartitionsToTxn",
        "",
        "transactions=empty",
        "version 4 and newer, no transactions",
        "no answer",
        "an empty answer",
        _MUST_ANSWER,
    ),
    KnownDifference(
        "WriteTxnMarkers",
        ".*error_code",
        "markers.producer_(id|epoch)=-1",
        "producer id or epoch -1",
        "UNKNOWN_SERVER_ERROR",
        "appended, or INVALID_PRODUCER_EPOCH",
        "they are checked like all others",
    ),
    KnownDifference(
        "WriteTxnMarkers", "", ".*=twice", "a partition twice", "no answer", "one answer for it", _MUST_ANSWER
    ),
    KnownDifference(
        "DescribeConfigs",
        ".*documentation",
        ".*",
        "include_documentation",
        "a text for each setting",
        "a text of its own for each setting that is served",
        "Kafka's documentation is not copied",
    ),
    KnownDifference(
        "IncrementalAlterConfigs",
        ".*error_(code|message)",
        ".*config_operation=4",
        "an operation that does not exist",
        "UNKNOWN_SERVER_ERROR, and the controller fails over",
        "INVALID_REQUEST",
        _CLIENTS_ERROR,
    ),
    KnownDifference(
        "AlterConfigs", "", ".*=twice", "a resource twice", "no answer", "INVALID_REQUEST for each", _MUST_ANSWER
    ),
    KnownDifference(
        "DescribeConfigs",
        ".*error_message",
        ".*resource_type=.*",
        "a resource type that does not exist",
        "the standard message of the error",
        "a message that names the type",
        "it says more",
    ),
    KnownDifference(
        "AlterUserScramCredentials",
        "results.error_code",
        ".*salted_password=empty",
        "an empty salted password",
        "UNKNOWN_SERVER_ERROR",
        "accepted",
        "no client can log in with it",
    ),
    KnownDifference(
        "ConsumerGroupHeartbeat",
        "error_message",
        r".*regex='\('",
        "a regular expression that is wrong",
        "the message of RE2/J",
        "the message of RE2",
        "the libraries differ",
    ),
    *(
        KnownDifference(
            api,
            ".*error_message",
            "good",
            "without the right to the cluster",
            "the request as a Java object, and the right",
            "the standard message of the error",
            "there is no such object",
            has_rights=False,
        )
        for api in (
            "DescribeAcls",
            "CreateAcls",
            "DeleteAcls",
            "AlterUserScramCredentials",
            "UpdateFeatures",
            "ElectLeaders",
            "AlterPartitionReassignments",
            "ListPartitionReassignments",
            "UnregisterBroker",
        )
    ),
    *(
        KnownDifference(
            api,
            ".*error_(code|message)",
            "timeout_ms=.*",
            "a timeout of 0 or less",
            "REQUEST_TIMED_OUT",
            "as with any other timeout",
            "it takes no time",
        )
        for api in ("ElectLeaders", "AlterPartitionReassignments")
    ),
    KnownDifference(
        "DescribeTopicPartitions",
        "next_cursor",
        "cursor.partition_index=2147483647",
        "a cursor at the largest partition",
        "a cursor at a negative partition",
        "no cursor",
        "there are no more partitions",
    ),
    KnownDifference(
        "CreateDelegationToken",
        "error_code|principal_(type|name)",
        "owner_principal_type=null",
        "an owner with a name and no type",
        "UNKNOWN_SERVER_ERROR",
        "an owner of type User",
        _CLIENTS_ERROR,
    ),
    KnownDifference(
        "DescribeLogDirs",
        r"results\.(log_dir|total_bytes|usable_bytes|topics\.partitions\.partition_size)",
        ".*",
        "any",
        "a folder, its disk, and the sizes of the logs in it",
        "the logs of the broker's own folder or memory",
        "disks and batches differ",
    ),
    KnownDifference(
        "DescribeUserScramCredentials",
        ".*error_message",
        "good",
        "without the right to the cluster",
        "a null message",
        "the standard message of the error",
        "it says more",
        has_rights=False,
    ),
)

# The APIs that Apache Kafka's brokers advertise and that are not served, by their keys.
NOT_SERVED: Final[Mapping[int, tuple[str, str]]] = {
    80: ("AddRaftVoter", "there is no quorum of controllers"),
    81: ("RemoveRaftVoter", "there is no quorum of controllers"),
    88: ("StreamsGroupHeartbeat", "streams groups are not supported"),
    89: ("StreamsGroupDescribe", "streams groups are not supported"),
    93: ("StreamsGroupTopologyDescriptionUpdate", "streams groups are not supported"),
    94: ("UnregisterController", "there is no quorum of controllers"),
}


def tables() -> str:
    """Write the tables for the document."""
    rows = dict.fromkeys((each.api, each.request, each.apache, each.ours, each.why) for each in KNOWN)
    answers = table(("API", "request", "Apache Kafka", "`broker_core`", "why"), rows)
    missing = [(f"{name} ({key})", why) for key, (name, why) in NOT_SERVED.items()]
    return f"{answers}\n\n{table(('API not served', 'why'), missing)}"


def rewritten(page: str) -> str:
    """Return the page with current tables."""
    before, _, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert end, f"no {_END} in the page"
    return f"{before}{_BEGIN}\n{tables()}\n\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
