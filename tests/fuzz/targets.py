"""Every parser of outside bytes in both packages, with valid inputs as seeds.

A target takes bytes and either returns or raises one of its declared errors. Any other exception is a bug.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafka.errors import KafkaProtocolError

from broker_core.errors import DamageError, InvalidBatch
from broker_core.security.sasl import AuthenticationFailed
from broker_core.wire.framing import MalformedFrame, UnsupportedVersion
from spark_eos.errors import EosKafkaError
from tests.fuzz import answers, brokers, clients, files, handshakes, journals, records, secrets, seeds
from tests.support.broker_core.metadata_journal import metadata_records


@dataclass(frozen=True, slots=True)
class Target:
    """A parser with its declared errors and with inputs that it accepts."""

    name: str
    feed: Callable[[bytes], object]
    declared: tuple[type[Exception], ...]
    seeds: Callable[[], Sequence[bytes]]

    def try_one(self, data: bytes) -> bool:
        """Feed one input; return whether it was accepted, and raise any undeclared error."""
        try:
            self.feed(data)
        except self.declared:
            return False
        return True


TARGETS: Sequence[Target] = (
    Target("frames", brokers.feed_frames, (MalformedFrame, UnsupportedVersion), seeds.frames),
    Target("connection", brokers.feed_connection, (), seeds.frames),
    Target("batch headers", records.feed_headers, (InvalidBatch,), seeds.batches),
    Target("records", records.feed_records, (InvalidBatch,), seeds.batches),
    Target("control records", records.feed_control, (InvalidBatch,), seeds.batches),
    Target("compression", records.feed_compressed, (InvalidBatch,), seeds.compressed),
    Target("producer snapshot", files.feed_snapshot, (DamageError,), seeds.snapshots),
    Target("transaction index", files.feed_transaction_index, (DamageError,), seeds.transaction_indexes),
    Target("offset and time index", files.feed_sparse_index, (DamageError,), seeds.sparse_indexes),
    Target("checkpoints", files.feed_checkpoint, (DamageError,), seeds.checkpoints),
    Target("recovery", files.feed_recovery, (DamageError,), seeds.log_files),
    Target("transaction journal", journals.feed_transactions, (DamageError,), seeds.transaction_records),
    Target("group journal", journals.feed_groups, (DamageError,), seeds.group_records),
    Target("metadata journal", journals.feed_metadata, (DamageError,), metadata_records),
    Target("tokens", secrets.feed_tokens, (AuthenticationFailed,), seeds.tokens),
    Target("decode", clients.feed_decode, (InvalidBatch,), seeds.batches),
    Target("decisions", clients.feed_decision, (EosKafkaError,), seeds.decisions),
    Target("options", clients.feed_options, (EosKafkaError,), seeds.options),
    # kafka-python closes a connection after this one, and the client raises one of its own errors.
    Target("answers", answers.feed_answer, (KafkaProtocolError,), answers.answer_seeds),
    Target("conversations", answers.feed_conversation, (EosKafkaError,), answers.conversation_seeds),
    Target("handshakes", handshakes.feed_handshake, (EosKafkaError,), handshakes.handshake_seeds),
)
BY_NAME = {target.name: target for target in TARGETS}
