"""What each setting of brokers, topics and client metrics means, for DescribeConfigs and the documentation.

A topic's setting with a default of the broker has the meaning of that one.
"""

from typing import Final

MEANINGS: Final = {
    "node.id": "The id of the first broker; further ones count from it.",
    "cluster.id": "The id of the cluster; empty: a random one, kept with the data.",
    "auto.create.topics.enable": "Whether a missing topic is created when a client asks for its metadata.",
    "num.partitions": "The number of partitions of a topic whose creation does not name one.",
    "default.replication.factor": "The number of replicas of topics whose creation gives none; -1: all brokers.",
    "delete.topic.enable": "Whether topics may be deleted at all.",
    "transaction.version": (
        "The level of the feature transaction.version of a new cluster: 2 is KIP-890 part 2, 0 and 1 are the "
        "protocol before it."
    ),
    "kafka.version": (
        "The version of Kafka, 3.6 to 4.4, whose APIs and features are served, and with whose feature levels a new "
        "cluster starts; empty: the newest. Not a setting of Kafka's."
    ),
    "log.flush.before.ack": (
        "Whether a write is forced to the disk before it is acknowledged. Not a setting of Kafka's, which relies "
        "on replicas."
    ),
    "authorizer.class.name": (
        "The authorizer: empty, and every client may do everything, or Kafka's StandardAuthorizer, which checks ACLs."
    ),
    "delegation.token.secret.key": "The key that delegation tokens are derived from; empty: there are none.",
    "delegation.token.max.lifetime.ms": "The longest lifetime of a delegation token in ms.",
    "delegation.token.expiry.time.ms": "After how many ms a delegation token expires that is not renewed.",
    "delegation.token.expiry.check.interval.ms": (
        "The interval in ms between two searches for expired delegation tokens."
    ),
    "super.users": (
        "Principals that may do everything whatever the ACLs are, separated by semicolons: User:alice;User:bob."
    ),
    "allow.everyone.if.no.acl.found": "Whether every principal may access a resource that has no ACL.",
    "listeners": (
        "Listeners as NAME://host:port, separated by commas. Empty: one in plaintext at --host and --port. An "
        "empty host is that of --host, port 0 is a free one; each further broker takes the next port."
    ),
    "advertised.listeners": "The addresses that clients connect to, where they differ from those of the listeners.",
    "listener.security.protocol.map": "The protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    "inter.broker.listener.name": (
        "The listener that accepts connections beyond max.connections; the longest idle connection of another one "
        "is closed."
    ),
    "sasl.enabled.mechanisms": (
        "The SASL mechanisms that clients may use. OAUTHBEARER without a key set accepts unsigned tokens, for "
        "tests only. Kafka's own default is GSSAPI."
    ),
    "sasl.server.max.receive.size": "The largest request that a client may send before it is authenticated, in bytes.",
    "sasl.oauthbearer.jwks.endpoint.url": (
        "Where the public keys come from that signed OAUTHBEARER tokens are validated with: an https or a file "
        "URL. Without it, OAUTHBEARER accepts unsigned tokens."
    ),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "How often those keys are read again, in ms.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": (
        "How long to wait after the first failure to read the keys, in ms."
    ),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "How long to try to read the keys, in ms.",
    "sasl.oauthbearer.expected.audience": (
        "The audiences that tokens may be for, with commas between. Required for signed tokens."
    ),
    "sasl.oauthbearer.expected.issuer": "The issuer that tokens must have. Required for signed tokens.",
    "sasl.oauthbearer.allow.unverified.audience": "Whether signed tokens are accepted without an expected audience.",
    "sasl.oauthbearer.allow.unverified.issuer": "Whether signed tokens are accepted without an expected issuer.",
    "sasl.oauthbearer.clock.skew.seconds": (
        "The difference between the clocks of the issuer and of the broker that is accepted, in seconds."
    ),
    "sasl.oauthbearer.scope.claim.name": ("The claim with a token's scope."),
    "sasl.oauthbearer.sub.claim.name": "The claim with the user name.",
    "connections.max.reauth.ms": "After how many ms a client has to authenticate again (KIP-368); 0: never.",
    "max.connections": "The number of connections that a broker accepts; further ones wait.",
    "max.connection.creation.rate": (
        "The number of new connections that a broker accepts in a second; further ones wait."
    ),
    "ssl.client.auth": "Whether clients present certificates. For SASL_SSL, give it to the listener itself.",
    "ssl.enabled.protocols": "The versions of TLS that the broker accepts.",
    "ssl.cipher.suites": (
        "The cipher suites of TLS 1.2 by Java's names; empty: all. TLS 1.3 is accepted only if one of its suites is "
        "named, and then with any of them."
    ),
    "ssl.allow.dn.changes": "Whether a certificate may have another subject when it changes while the broker runs.",
    "ssl.allow.san.changes": (
        "Whether a certificate may lack alternative names of the previous one when it changes while the broker runs."
    ),
    "ssl.principal.mapping.rules": (
        "How a certificate's distinguished name becomes a user name: DEFAULT for all of it, or "
        "RULE:pattern/replacement/[LU]."
    ),
    "ssl.keystore.type": "The format of the key store: JKS, PKCS12 or PEM. If empty, the content decides.",
    "ssl.keystore.location": "A file with the broker's key and certificate chain.",
    "ssl.keystore.password": "The password of a key store in JKS or PKCS12.",
    "ssl.keystore.certificate.chain": "The certificate chain as PEM text, instead of the file.",
    "ssl.keystore.key": "The key as PEM text, instead of the file.",
    "ssl.key.password": "The password of an encrypted key. If empty, the store's password.",
    "ssl.truststore.type": "The format of the trust store: JKS, PKCS12 or PEM. If empty, the content decides.",
    "ssl.truststore.location": "A file with the authorities that sign clients' certificates.",
    "ssl.truststore.password": "The password of a trust store in JKS or PKCS12. JKS can be read without it.",
    "ssl.truststore.certificates": "Those authorities as PEM text, instead of the file.",
    "max.connections.per.ip": "The number of connections from one address.",
    "max.connections.per.ip.overrides": "The number for single addresses, as address:count separated by commas.",
    "connection.failed.authentication.delay.ms": (
        "How many ms the broker waits before it answers a failed authentication."
    ),
    "message.max.bytes": "The largest record batch that a topic accepts, in bytes.",
    "socket.request.max.bytes": "The largest request that a connection accepts, in bytes.",
    "connections.max.idle.ms": "After how many ms without a request a connection is closed; -1: never.",
    "max.request.partition.size.limit": "The most partitions in one page of DescribeTopicPartitions.",
    "fetch.max.bytes": "The most bytes that one fetch returns.",
    "max.incremental.fetch.session.cache.slots": "The number of incremental fetch sessions that a broker keeps.",
    "log.cleanup.policy": "What happens to old data: delete, compact, or both, separated by a comma.",
    "log.cleaner.enable": "Whether compacted topics are compacted.",
    "log.cleaner.backoff.ms": "The interval in ms between two searches for logs to compact.",
    "log.index.interval.bytes": "The number of bytes between two entries of an offset index.",
    "log.message.timestamp.type": (
        "Whose timestamps records have: CreateTime (the client's) or LogAppendTime (the broker's)."
    ),
    "log.retention.bytes": (
        "The size in bytes beyond which the oldest segments of a partition are deleted; -1: no limit."
    ),
    "log.retention.ms": "The age in ms after which a segment is deleted; -1: no limit.",
    "log.retention.check.interval.ms": "The interval in ms between two checks of retention.",
    "log.segment.bytes": "The size in bytes at which a new segment begins.",
    "log.roll.ms": "The age in ms at which a new segment begins.",
    "compression.type": ("The compression of a topic's batches: producer keeps that of the producer."),
    "compression.gzip.level": (
        "The level of batches that the broker compresses with gzip, 1 to 9; -1: the default of gzip."
    ),
    "compression.lz4.level": "The level of batches that the broker compresses with lz4.",
    "compression.zstd.level": "The level of batches that the broker compresses with zstd.",
    "log.cleaner.delete.retention.ms": "How long in ms a compacted topic keeps a tombstone.",
    "log.cleaner.max.compaction.lag.ms": "After how many ms at most a record of a compacted topic is compacted.",
    "log.cleaner.min.cleanable.ratio": "The share of a log that must be dirty before it is compacted.",
    "log.cleaner.min.compaction.lag.ms": "For how many ms a record of a compacted topic stays uncompacted.",
    "log.index.size.max.bytes": ("The largest size in bytes of a segment's index files."),
    "log.message.timestamp.after.max.ms": (
        "By how many ms the timestamp of a record may be ahead of the broker's clock."
    ),
    "log.message.timestamp.before.max.ms": (
        "By how many ms the timestamp of a record may be behind the broker's clock."
    ),
    "max.decompressed.message.bytes": (
        "The largest size in bytes of a batch after decompression; at most 100 times max.message.bytes."
    ),
    "min.insync.replicas": "The number of replicas in sync, at most all, that a write with acks of all needs.",
    "unclean.leader.election.enable": "Stored and described. All brokers share the logs, so no election is unclean.",
    "quota.window.num": ("The number of windows that a client's rate is measured over."),
    "quota.window.size.seconds": "The length of each of these windows in seconds.",
    "controller.quota.window.num": (
        "The number of windows that the creations and deletions of partitions are counted in."
    ),
    "controller.quota.window.size.seconds": "The length of each of these windows in seconds.",
    "transaction.max.timeout.ms": "The longest transaction timeout in ms that a producer may request.",
    "transactional.id.expiration.ms": "After how many ms an unused transactional id is forgotten.",
    "transaction.state.log.num.partitions": (
        "The number of partitions of the topic __transaction_state; fixed once it exists."
    ),
    "transaction.state.log.segment.bytes": "The segment size of the topic __transaction_state, in bytes.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "The interval in ms between two searches for transactions past their timeout, which are aborted."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "The interval in ms between two searches for expired transactional ids."
    ),
    "transaction.two.phase.commit.enable": (
        "Whether producers may keep a transaction open without a timeout, for an external coordinator (two-phase "
        "commit)."
    ),
    "transaction.partition.verification.enable": (
        "Whether the leader verifies a transactional write with the coordinator before it appends it."
    ),
    "producer.id.expiration.ms": "After how many ms a partition forgets an idle producer id.",
    "producer.id.expiration.check.interval.ms": "The interval in ms between two searches for expired producer ids.",
    "add.partitions.to.txn.retry.backoff.ms": (
        "The wait in ms before a leader asks the coordinator again while another transaction completes."
    ),
    "add.partitions.to.txn.retry.backoff.max.ms": "The longest such wait, in ms.",
    "offsets.topic.num.partitions": "The number of partitions of the topic __consumer_offsets; fixed once it exists.",
    "offsets.topic.segment.bytes": "The segment size of the topic __consumer_offsets, in bytes.",
    "offset.metadata.max.bytes": "The longest metadata string of a committed offset, in bytes.",
    "offsets.retention.minutes": "After how many minutes the offsets of a group without members are deleted.",
    "offsets.retention.check.interval.ms": "The interval in ms between two searches for offsets past their retention.",
    "group.initial.rebalance.delay.ms": (
        "How many ms the first rebalance of an empty group waits for more members. Kafka's own default is 3000."
    ),
    "group.min.session.timeout.ms": "The shortest session timeout in ms that a group member may request.",
    "group.max.session.timeout.ms": "The longest session timeout in ms that a group member may request.",
    "group.max.size": "The largest number of members of a group.",
    "group.version": (
        "The level of the feature group.version of a new cluster: 1 enables the consumer group protocol of KIP-848."
    ),
    "group.consumer.session.timeout.ms": (
        "After how many ms without a heartbeat a member of a consumer group is removed."
    ),
    "group.consumer.heartbeat.interval.ms": "The interval in ms at which members of consumer groups send heartbeats.",
    "group.consumer.migration.policy": (
        "The directions in which a group with members changes its protocol: upgrade from classic, downgrade to "
        "classic, both, or none."
    ),
    "group.consumer.min.session.timeout.ms": (
        "The shortest consumer.session.timeout.ms in ms that a group may set for itself."
    ),
    "group.consumer.max.session.timeout.ms": (
        "The longest consumer.session.timeout.ms in ms that a group may set for itself."
    ),
    "group.consumer.min.heartbeat.interval.ms": (
        "The shortest consumer.heartbeat.interval.ms in ms that a group may set for itself."
    ),
    "group.consumer.max.heartbeat.interval.ms": (
        "The longest consumer.heartbeat.interval.ms in ms that a group may set for itself."
    ),
    "group.consumer.min.assignment.interval.ms": (
        "The shortest consumer.assignment.interval.ms in ms that a group may set for itself."
    ),
    "group.consumer.max.assignment.interval.ms": (
        "The longest consumer.assignment.interval.ms in ms that a group may set for itself."
    ),
    "group.consumer.max.size": "The largest number of members of a consumer group.",
    "group.consumer.assignment.interval.ms": (
        "The shortest time in ms between two assignments of a consumer group. Kafka's own default is 1000 since 4.4."
    ),
    "errors.deadletterqueue.group.enable": (
        "Whether share groups may use the topic for records that no member could process."
    ),
    "file.delete.delay.ms": "How long in ms Kafka keeps the file of a deleted segment; no effect here.",
    "flush.messages": "After how many records Kafka forces a log to the disk; no effect here.",
    "flush.ms": "After how many ms Kafka forces a log to the disk; no effect here.",
    "follower.replication.throttled.replicas": "The followers whose replication Kafka throttles; no effect here.",
    "leader.replication.throttled.replicas": "The leaders whose replication Kafka throttles; no effect here.",
    "local.retention.bytes": "The size in bytes that stays on the broker of a log with remote storage; no effect here.",
    "local.retention.ms": "The age in ms of what stays on the broker of a log with remote storage; no effect here.",
    "preallocate": "Whether Kafka reserves the disk space of a new segment; no effect here.",
    "remote.copy.lag.bytes": (
        "How many bytes a segment lags behind before Kafka copies it to remote storage; no effect here."
    ),
    "remote.copy.lag.ms": "How many ms a segment waits before Kafka copies it to remote storage; no effect here.",
    "remote.log.copy.disable": "Whether Kafka stops copying to remote storage; no effect here.",
    "remote.log.delete.on.disable": (
        "Whether Kafka deletes the remote log when remote storage is disabled; no effect here."
    ),
    "remote.storage.enable": "Whether Kafka copies the log to remote storage; no effect here.",
    "segment.jitter.ms": "By how many ms at most Kafka varies when a new segment begins; no effect here.",
    "interval.ms": "The interval in ms at which clients send their metrics; no effect here.",
    "match": "Which clients send metrics, as selector=pattern; no effect here.",
    "metrics": "The prefixes of the metrics that clients send; no effect here.",
    "share.assignment.interval.ms": "The interval in ms between two assignments of the share group's partitions.",
    "share.heartbeat.interval.ms": "The interval in ms at which members of the share group send heartbeats.",
    "share.session.timeout.ms": "After how many ms without a heartbeat a member leaves the share group.",
    "share.delivery.count.limit": "How often the share group gets a record before it counts as one that fails.",
    "share.partition.max.record.locks": "How many records of a partition members of the share group hold at most.",
    "share.record.lock.duration.ms": "For how many ms a member of the share group holds a record.",
    "share.auto.offset.reset": "Where a new share group begins: latest, earliest, or by_duration and a duration.",
    "share.isolation.level": "Whether the share group gets records of open and of aborted transactions.",
    "share.renew.acknowledge.enable": "Whether members of the share group may hold a record for longer.",
    "errors.deadletterqueue.copy.record.enable": "Whether a record that fails is copied to the topic for such records.",
    "errors.deadletterqueue.topic.name": "The topic for records that no member of the share group could process.",
    "streams.assignment.interval.ms": "The interval in ms of assignments in the streams group; no effect here.",
    "streams.heartbeat.interval.ms": "The interval in ms of heartbeats in the streams group; no effect here.",
    "streams.session.timeout.ms": "After how many ms a member leaves the streams group; no effect here.",
    "streams.initial.rebalance.delay.ms": "How many ms a new streams group waits for members; no effect here.",
    "streams.num.standby.replicas": "The number of standby tasks of the streams group; no effect here.",
    "streams.rack.aware.assignment.tags": "The client tags by which standby tasks are spread; no effect here.",
    "streams.assignor.name": "The assignor of the streams group; no effect here.",
    "share.version": "The finalized level of the feature share.version; 0 disables share groups.",
    "group.share.session.timeout.ms": "How long a member of a share group may be silent before it is removed.",
    "group.share.heartbeat.interval.ms": "How often members of share groups shall send heartbeats.",
    "group.share.assignment.interval.ms": "The shortest time between two assignments of a share group.",
    "group.share.max.size": "The largest number of members of a share group.",
    "group.share.max.share.sessions": "The largest number of share sessions of a broker.",
    "group.share.delivery.count.limit": "How often a record is delivered to a share group before it is archived.",
    "group.share.partition.max.record.locks": (
        "How many records of a partition a share group may have acquired or done above its start offset."
    ),
    "group.share.record.lock.duration.ms": "How long a member of a share group keeps a record that it has acquired.",
    "group.share.min.session.timeout.ms": "The shortest share.session.timeout.ms of a group.",
    "group.share.max.session.timeout.ms": "The longest share.session.timeout.ms of a group.",
    "group.share.min.heartbeat.interval.ms": "The shortest share.heartbeat.interval.ms of a group.",
    "group.share.max.heartbeat.interval.ms": "The longest share.heartbeat.interval.ms of a group.",
    "group.share.min.assignment.interval.ms": "The shortest share.assignment.interval.ms of a group.",
    "group.share.max.assignment.interval.ms": "The longest share.assignment.interval.ms of a group.",
    "group.share.min.delivery.count.limit": "The smallest share.delivery.count.limit of a group.",
    "group.share.max.delivery.count.limit": "The largest share.delivery.count.limit of a group.",
    "group.share.min.partition.max.record.locks": "The smallest share.partition.max.record.locks of a group.",
    "group.share.max.partition.max.record.locks": "The largest share.partition.max.record.locks of a group.",
    "group.share.min.record.lock.duration.ms": "The shortest share.record.lock.duration.ms of a group.",
    "group.share.max.record.lock.duration.ms": "The longest share.record.lock.duration.ms of a group.",
    "share.coordinator.state.topic.num.partitions": "Partitions of __share_group_state when it is created.",
    "share.coordinator.state.topic.segment.bytes": "Segment size of __share_group_state when it is created.",
    "share.coordinator.snapshot.update.records.per.snapshot": (
        "How many updates of the state of a share partition are recorded between two snapshots."
    ),
    "share.coordinator.state.topic.prune.interval.ms": (
        "How often records of __share_group_state before the latest snapshots are deleted."
    ),
    "share.coordinator.cold.partition.snapshot.interval.ms": (
        "After how long without an update a share partition gets a new snapshot, so "
        "that earlier records can be deleted."
    ),
}
