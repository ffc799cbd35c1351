"""The differences between the answers of both brokers that are known, each with its reason.

`docs/contributing/differences.md` shows this table; `python -m tests.support.request_generator.known` writes it there.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.support.reference import table
from tests.support.request_generator.comparison import Difference

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "contributing" / "differences.md"
_BEGIN, _END = "<!-- generated: answers that differ -->\n", "<!-- end of answers that differ -->"


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


# The first line of a row has the APIs, the paths of the fields, "-" for a missing answer, and the labels of the cases.
# The indented ones have what the document says: the request, Apache Kafka's answer, ours, and why.
_TABLE: Final = r"""
ApiVersions api_keys .* with or without rights
    any | all APIs | the APIs of the next table are missing | see there
Metadata .* topics.name=null
    versions 12 and 13, neither name nor id | UNKNOWN_SERVER_ERROR | UNKNOWN_TOPIC_ID | it is the client's error
Produce responses.* topic_data=twice|.*partition_data=twice
    a partition twice | only the last batch is appended and answered | both are appended and answered |
    nothing is dropped without an error
Produce - .*records=null
    null records | no answer | INVALID_RECORD | a client must not wait forever
Fetch responses.* .*max_bytes=-.*
    negative byte limits | UNKNOWN_SERVER_ERROR | treated as 0 | the offsets are right, so the client can go on
Fetch error_code|responses.* isolation_level=.*
    an isolation level that does not exist | UNKNOWN_SERVER_ERROR | INVALID_REQUEST | it is the client's error
Fetch error_code|session_id|responses.* session_id=2147483647
    closes a session with an id that is never given out | UNKNOWN_SERVER_ERROR | answered without a session |
    as for other sessions that do not exist
ListOffsets .*error_code isolation_level=.*
    an isolation level that does not exist | UNKNOWN_SERVER_ERROR | INVALID_REQUEST | it is the client's error
ShareFetch responses.* group_id=.*|topics.partitions.partition_index=0|good
    a fetch without a wait, of a partition that is loaded or read by another fetch | nothing yet |
    the partition, with UNKNOWN_SERVER_ERROR if it has no state, as Kafka answers later |
    loading and reading take no time
ShareFetch responses (min|max|batch)_.* by chance
    a fetch without a wait, of a partition that the fetch before it still reads | nothing yet, by chance |
    the partition | reading takes no time
ShareFetch responses.partitions.error_code max_bytes=-.*
    negative byte limits | UNKNOWN_SERVER_ERROR | treated as 0 | as for Fetch
ShareFetch error_code share_acquire_mode=.*
    a mode that does not exist | UNKNOWN_SERVER_ERROR | INVALID_REQUEST | it is the client's error
ShareFetch error_code|acquisition_lock_timeout_ms|responses .*=twice
    a partition twice | UNKNOWN_SERVER_ERROR | fetched once | it is the client's error
ShareFetch,ShareAcknowledge error_code|acquisition_lock_timeout_ms|responses topics.topic_id=.*
    a topic id that does not exist | UNKNOWN_SERVER_ERROR for the request | UNKNOWN_TOPIC_ID for its partitions |
    the others go on
ShareAcknowledge .* group_id=.*
    a session that is not the last one of a lost connection | it stays | it ends with its connection |
    its member is gone
AlterShareGroupOffsets responses.partitions .*=twice
    a partition twice | answered twice | answered once | it is changed once
AlterShareGroupOffsets error_code|error_message|responses .*partition_index=-.*
    a negative partition | UNKNOWN_SERVER_ERROR for the request | UNKNOWN_TOPIC_OR_PARTITION for it | the others go on
DescribeShareGroupOffsets groups.topics.*|groups.error_(code|message)
.*(group_id=empty|partitions=empty|partitions=negative)
    an empty group id, no partitions of a topic, or a negative partition | UNKNOWN_SERVER_ERROR for the group |
    no offsets | it is the client's error
DescribeShareGroupOffsets groups.topics.* .*=twice
    a topic or partition twice | answered once | answered twice | as it was asked for
DescribeShareGroupOffsets - .*partitions=(large|more)
    a partition that does not exist | no answer | no offset | a client must not wait forever
JoinGroup .*member_id|leader group_instance_id=empty
    an empty instance id | the member id begins with - | the member id begins with the client id |
    an empty id is no id
JoinGroup protocol_name protocols.name=empty
    a protocol with an empty name | a null name is chosen | the empty name is chosen | it is the member's
JoinGroup - protocols=twice
    a protocol twice | no answer | the member joins | a client must not wait forever
CreateTopics topics.configs.config_source .*
    any that succeeds | min.insync.replicas is a setting of the cluster | min.insync.replicas is a default |
    eligible leader replicas do not exist here
OffsetForLeaderEpoch topics.partitions.(leader_epoch|end_offset) .*leader_epoch=-2
    leader epoch -2 | epoch -2 ends at the log start offset | unknown, as for -1 | there is no such epoch
AddPartitionsToTxn - transactions=empty
    version 4 and newer, no transactions | no answer | an empty answer | a client must not wait forever
WriteTxnMarkers .*error_code markers.producer_(id|epoch)=-1
    producer id or epoch -1 | UNKNOWN_SERVER_ERROR | appended, or INVALID_PRODUCER_EPOCH |
    they are checked like all others
WriteTxnMarkers - .*=twice
    a partition twice | no answer | one answer for it | a client must not wait forever
DescribeConfigs .*documentation .*
    include_documentation | a text for each setting | a text of its own for each setting that is served |
    Kafka's documentation is not copied
IncrementalAlterConfigs .*error_(code|message) .*config_operation=4
    an operation that does not exist | UNKNOWN_SERVER_ERROR, and the controller fails over | INVALID_REQUEST |
    it is the client's error
AlterConfigs - .*=twice
    a resource twice | no answer | INVALID_REQUEST for each | a client must not wait forever
AlterUserScramCredentials results.error_code .*salted_password=empty
    an empty salted password | UNKNOWN_SERVER_ERROR | accepted | no client can log in with it
ConsumerGroupHeartbeat error_message .*regex='\('
    a regular expression that is wrong | the message of RE2/J | the message of RE2 | the libraries differ
DescribeAcls,CreateAcls,DeleteAcls,AlterUserScramCredentials,UpdateFeatures,ElectLeaders,
AlterPartitionReassignments,ListPartitionReassignments,UnregisterBroker .*error_message good without rights
    without the right to the cluster | the request as a Java object, and the right |
    the standard message of the error | there is no such object
ElectLeaders,AlterPartitionReassignments .*error_(code|message) timeout_ms=.*
    a timeout of 0 or less | REQUEST_TIMED_OUT | as with any other timeout | it takes no time
DescribeTopicPartitions next_cursor cursor.partition_index=2147483647
    a cursor at the largest partition | a cursor at a negative partition | no cursor | there are no more partitions
CreateDelegationToken error_code|principal_(type|name) owner_principal_type=null
    an owner with a name and no type | UNKNOWN_SERVER_ERROR | an owner of type User | it is the client's error
DescribeLogDirs results\.(log_dir|total_bytes|usable_bytes|topics\.partitions\.partition_size) .*
    any | a folder, its disk, and the sizes of the logs in it | the logs of the broker's own folder or memory |
    disks and batches differ
DescribeUserScramCredentials .*error_message good without rights
    without the right to the cluster | a null message | the standard message of the error | it says more
"""


def _rows(text: str) -> Iterator[KnownDifference]:
    lines = [" ".join(each) for _, each in groupby(text.strip().splitlines(), lambda line: line.startswith(" "))]
    for head, said in zip(lines[::2], lines[1::2], strict=True):
        apis, path, label, how = f"{head} ".replace(", ", ",").split(" ", 3)
        has_rights = {"with or without rights ": None, "without rights ": False}.get(how, True)
        request, apache, ours, why = (each.strip() for each in said.split(" | "))
        for api in apis.split(","):
            row = KnownDifference(api, path.strip("-"), label, request, apache, ours, why, has_rights)
            yield replace(row, is_by_chance=how == "by chance ")


KNOWN: Final = tuple(_rows(_TABLE))

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
