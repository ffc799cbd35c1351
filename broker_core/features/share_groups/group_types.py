"""Share groups, as the group coordinator sees them."""

from typing import Final

from broker_core.coordinator.groups.group_types import GroupType
from broker_core.coordinator.groups.modern_records import write_epoch_alone
from broker_core.features.share_groups.groups.group import SHARE_GROUP_TYPE, ShareGroup
from broker_core.features.share_groups.groups.groups import ShareGroups
from broker_core.features.share_groups.groups.records import SHARE_RECORDS, RecordType

GROUP_TYPE: Final = GroupType(
    name=SHARE_GROUP_TYPE,
    make=ShareGroup,
    records=SHARE_RECORDS,
    records_before_4_3=SHARE_RECORDS.with_writers({RecordType.TARGET_EPOCH: write_epoch_alone}),
    coordinate=ShareGroups,
)
