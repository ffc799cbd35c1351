"""A cluster with an authorizer, its administrator, and further users."""

from typing import Any

from broker_core.broker.cluster import Cluster
from broker_core.config import STANDARD_AUTHORIZER
from broker_core.security.acls import Operation, PatternType, Permission, ResourceType
from broker_core.security.principals import user
from broker_core.wire import messages as m
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import EVERY_ACL, filled

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"}


class AclWorld:
    """A cluster with an authorizer; `root` is a super user, `alice` has the rights that a test grants."""

    def __init__(self, storage: Any = None, **settings: str) -> None:
        self.cluster: Cluster = direct_cluster(storage, settings=SETTINGS | settings)
        self.root = self.client("root")
        self.alice = self.client("alice")

    def client(self, name: str, host: str = "10.0.0.1") -> DirectClient:
        """Connect as a user."""
        return DirectClient(self.cluster, principal=user(name), host=host)

    def grant(
        self,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        who: str = "User:alice",
        pattern: PatternType = PatternType.LITERAL,
        permission: Permission = Permission.ALLOW,
        host: str = "*",
    ) -> None:
        """Create an ACL."""
        creation = {
            "resource_type": resource_type,
            "resource_name": name,
            "resource_pattern_type": pattern,
            "principal": who,
            "host": host,
            "operation": operation,
            "permission_type": permission,
        }
        answer = self.root.ask(filled(m.CreateAclsRequest, creations=[creation]), 3)
        assert [result.error_code for result in answer.results] == [0], answer

    def revoke_all(self) -> None:
        """Delete every ACL."""
        [result] = self.root.ask(filled(m.DeleteAclsRequest, filters=[EVERY_ACL]), 3).filter_results
        assert result.error_code == 0
