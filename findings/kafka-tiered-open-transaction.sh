#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) with tiered storage, confluent-kafka 2.16.1. Three topics keep 4 MiB (retention.bytes) in
# segments of 1 MiB; the two tiered ones keep 2 MiB of it on the node's disk. A transaction is open at the start of two of them
# with one record, and another producer commits 20 MiB behind it. The remote storage is a map in the node's memory. Needs a JDK.
#
# Seen: the tiered topic without an open transaction and the topic without tiered storage are cut to 2 and 4 MiB. The tiered
#       topic with the open transaction is not cut at all: nothing is uploaded, and nothing is deleted.
#       DeleteRecords frees the disk up to the offset that it names. The end of the transaction does it for the rest.
#
# Surprising, because retention deletes segments of open transactions in a topic without tiered storage, and because remote
# storage is there to keep the disk small: one forgotten transaction of one record lets it grow without a limit.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
jars_of remote org.apache.kafka:kafka-storage-api:4.4.0 \
    org.apache.kafka:kafka-clients:4.4.0
cat >remote/InMemory.java <<'JAVA'
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** A remote storage in the node's memory. */
public class InMemory implements RemoteStorageManager {
    private final Map<String, byte[]> objects = new ConcurrentHashMap<>();

    public void configure(Map<String, ?> settings) {}

    public void close() {}

    private static String name(RemoteLogSegmentMetadata segment, Object kind) {
        return segment.remoteLogSegmentId().id() + "/" + kind;
    }

    private void put(RemoteLogSegmentMetadata segment, Object kind, Path path) throws IOException {
        objects.put(name(segment, kind), Files.readAllBytes(path));
    }

    private byte[] get(RemoteLogSegmentMetadata segment, Object kind) throws RemoteStorageException {
        byte[] object = objects.get(name(segment, kind));
        if (object == null) {
            throw new RemoteResourceNotFoundException("no " + kind);
        }
        return object;
    }

    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        try {
            put(segment, "LOG", data.logSegment());
            put(segment, IndexType.OFFSET, data.offsetIndex());
            put(segment, IndexType.TIMESTAMP, data.timeIndex());
            put(segment, IndexType.PRODUCER_SNAPSHOT, data.producerSnapshotIndex());
            if (data.transactionIndex().isPresent()) {
                put(segment, IndexType.TRANSACTION, data.transactionIndex().get());
            }
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
        ByteBuffer epochs = data.leaderEpochIndex().duplicate();
        byte[] bytes = new byte[epochs.remaining()];
        epochs.get(bytes);
        objects.put(name(segment, IndexType.LEADER_EPOCH), bytes);
        return Optional.empty();
    }

    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE - 1);
    }

    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end) throws RemoteStorageException {
        byte[] object = get(segment, "LOG");
        return new ByteArrayInputStream(Arrays.copyOfRange(object, start, Math.min(object.length, end + 1)));
    }

    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType kind) throws RemoteStorageException {
        return new ByteArrayInputStream(get(segment, kind));
    }

    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) {
        objects.keySet().removeIf(each -> each.startsWith(segment.remoteLogSegmentId().id() + "/"));
    }
}
JAVA
javac -cp 'remote/jars/*' -d remote/classes remote/InMemory.java
apache_kafka 4.4.0 \
    remote.log.storage.system.enable=true \
    remote.log.storage.manager.class.name=InMemory \
    "remote.log.storage.manager.class.path=$folder/remote/classes/" \
    remote.log.metadata.manager.listener.name=PLAINTEXT \
    rlmm.config.remote.log.metadata.topic.replication.factor=1 \
    rlmm.config.remote.log.metadata.topic.num.partitions=1 \
    remote.log.manager.task.interval.ms=1000 \
    log.retention.check.interval.ms=1000 \
    log.initial.task.delay.ms=1000
cat >drive.py <<'PYTHON'
import glob
import os
import time

from confluent_kafka import TopicPartition
from kafka_clients import ADMIN, create, start, transactional
from seen import see, wait_for

MEBIBYTE = 1 << 20
VALUE = b"x" * (MEBIBYTE // 10)
TOPICS = ("plain", "tiered", "calm")
TIERED = {"remote.storage.enable": "true", "local.retention.bytes": str(2 * MEBIBYTE)}


def on_disk(topic):
    """Return the mebibytes of the topic on the node's disk."""
    return round(sum(os.stat(path).st_size for path in glob.glob(f"data/{topic}-0/*.log")) / MEBIBYTE)


def cut():
    """Return whether records of each topic have been deleted."""
    return {topic: start(topic) > 0 for topic in TOPICS}


def write(producer, topic):
    producer.begin_transaction()
    for _ in range(10):
        producer.produce(topic, VALUE)
    producer.commit_transaction()


for topic in TOPICS:
    settings = {"segment.bytes": str(MEBIBYTE), "retention.bytes": str(4 * MEBIBYTE), "file.delete.delay.ms": "100"}
    create(topic, **settings | ({} if topic == "plain" else TIERED))
holders = []
for topic in ("plain", "tiered"):
    holders.append(transactional(f"holder of {topic}"))
    holders[-1].begin_transaction()
    holders[-1].produce(topic, b"first")
    holders[-1].flush()
other = transactional("other")
# The one that is cut comes last: its cut shows that the node has looked at the others, too.
for topic in ("plain", "tiered", "calm"):
    for _ in range(20):
        write(other, topic)
wait_for(lambda: on_disk("calm") <= 3 and cut()["calm"])
# Ten more rounds of the node, which looks each second.
time.sleep(10)
see("topics with records deleted", cut(), {"plain": True, "tiered": False, "calm": True})
print("mebibytes on disk:", {topic: on_disk(topic) for topic in TOPICS})
see("  within their limits", [on_disk("plain") <= 5, on_disk("tiered") <= 3, on_disk("calm") <= 3], [True, False, True])
see("  all of the tiered one's", on_disk("tiered"), 20)
for answer in ADMIN.delete_records([TopicPartition("tiered", 0, 100)]).values():
    answer.result()
see("  after DeleteRecords up to its middle", wait_for(lambda: 10 < on_disk("tiered") < 13), True)
for holder in holders:
    holder.commit_transaction()
see("  after the end of the transaction", wait_for(lambda: on_disk("tiered") <= 3), True)
see("topics with records deleted", cut(), {"plain": True, "tiered": True, "calm": True})
PYTHON
quietly python drive.py
