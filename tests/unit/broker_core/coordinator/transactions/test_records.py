"""The records of `__transaction_state` are Kafka's, byte for byte (rules B.1)."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.transactions.records import (
    PERSISTED,
    TransactionImage,
    as_stored,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from broker_core.errors import DamageError
from broker_core.types import TopicPartition, TransactionState

ONGOING = TransactionImage(
    4000,
    5,
    60_000,
    TransactionState.ONGOING,
    frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
    1_700_000_000_123,
    1_700_000_000_000,
)
EMPTY = TransactionImage(4000, 0, 60_000, TransactionState.EMPTY, frozenset(), 1_700_000_000_123)
V2 = TransactionImage(
    4000, 5, 60_000, TransactionState.ONGOING, ONGOING.partitions, ONGOING.update_ms, ONGOING.start_ms, -1, -1, 2
)

VALUES = {
    "v0": (
        ONGOING,
        0,
        "0000 0000000000000fa0 0005 0000ea60 01 00000001 0001 74 00000002 00000000 00000001"
        " 0000018bcfe5687b 0000018bcfe56800",
        52,
    ),
    "v0 empty": (EMPTY, 0, "0000 0000000000000fa0 0000 0000ea60 00 ffffffff 0000018bcfe5687b ffffffffffffffff", 37),
    "v1, client at 0": (
        ONGOING,
        1,
        "0001 0000000000000fa0 0005 0000ea60 01 02 02 74 03 00000000 00000001 00 0000018bcfe5687b 0000018bcfe56800 00",
        47,
    ),
    "v1, client at 2": (
        V2,
        2,
        "0001 0000000000000fa0 0005 0000ea60 01 02 02 74 03 00000000 00000001 00 0000018bcfe5687b"
        " 0000018bcfe56800 01 02 02 0002",
        51,
    ),
}


# Rule B.1/1.
def test_key_is_a_version_and_a_string() -> None:
    assert encode_key("my-txn").hex() == "000000066d792d74786e"
    assert decode_key(bytes.fromhex("000000066d792d74786e")) == "my-txn"


# Rules B.1/2, B.1/3 and B.1/4.
@pytest.mark.parametrize("name", VALUES)
def test_values_match_known_bytes(name: str) -> None:
    image, level, text, size_bytes = VALUES[name]
    value = encode_value(image, level)
    assert value.hex() == text.replace(" ", "")
    assert len(value) == size_bytes
    assert decode_value(value) == image


# Rule B.1/5.
def test_producer_ids_of_a_rotation_are_tags_0_and_1() -> None:
    image = TransactionImage(
        7, 32767, 1, TransactionState.PREPARE_ABORT, frozenset(), 2, 3, 7, 9, client_transaction_version=2
    )
    tail = "03 00 08 0000000000000007 01 08 0000000000000009 02 02 0002"
    assert encode_value(image, 2).hex().endswith(tail.replace(" ", ""))


# Rules A.15/7 and B.1/6.
@pytest.mark.parametrize(
    "image",
    [
        V2,
        TransactionImage(4000, 32767, 1, TransactionState.PREPARE_ABORT, frozenset(), 2, 3, 4000, 5000),
        TransactionImage(5000, 0, 1, TransactionState.EMPTY, frozenset(), 2, -1, 4000),
    ],
)
def test_version_0_is_not_used_where_it_would_lose_data(image: TransactionImage) -> None:
    value = encode_value(image, 0)
    assert value[:2] == b"\x00\x01"
    assert decode_value(value) == image


def test_version_0_omits_an_irrelevant_previous_producer_id() -> None:
    image = TransactionImage(4000, 1, 1, TransactionState.EMPTY, frozenset(), 2, -1, 4000)
    decoded = decode_value(encode_value(image, 0))
    assert decoded == TransactionImage(4000, 1, 1, TransactionState.EMPTY, frozenset(), 2)


# Rule B.1/4.
def test_end_without_partitions_is_written_with_an_empty_array() -> None:
    image = TransactionImage(1, 1, 1, TransactionState.COMPLETE_COMMIT, frozenset(), 2, 3)
    assert encode_value(image, 0)[17:21] == b"\x00\x00\x00\x00"
    assert encode_value(image, 1)[17:18] == b"\x01"


@given(
    st.builds(
        TransactionImage,
        st.integers(0, 2**63 - 1),
        st.integers(0, 32767),
        st.integers(0, 2**31 - 1),
        st.sampled_from(sorted(PERSISTED - {TransactionState.EMPTY})),
        st.frozensets(st.builds(TopicPartition, st.text(max_size=200), st.integers(0, 2**31 - 1)), max_size=6),
        st.integers(0, 2**63 - 1),
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**63 - 1),
        st.integers(0, 3),
    ),
    st.integers(0, 2),
)
def test_decoding_returns_the_image_as_stored(image: TransactionImage, transaction_version: int) -> None:
    assert decode_value(encode_value(image, transaction_version)) == as_stored(image, transaction_version)
    assert transaction_version == 0 or as_stored(image, transaction_version) == image


@given(st.integers(0, 2**63 - 1), st.sampled_from(sorted(PERSISTED)), st.booleans())
def test_state_without_a_previous_id_is_stored_in_version_0(
    producer_id: int, state: TransactionState, remembers: bool
) -> None:
    image = TransactionImage(producer_id, 1, 1, state, frozenset(), 2, 3, producer_id if remembers else -1)
    value = encode_value(image, 0)
    assert value[:2] == b"\0\0"
    assert decode_value(value) == as_stored(image, 0)


@given(st.binary(max_size=80))
def test_malformed_values_raise_only_damage_errors(data: bytes) -> None:
    for decode in (decode_key, decode_value):
        try:
            decode(data)
        except DamageError:
            continue


@pytest.mark.parametrize("name", VALUES)
def test_truncated_values_are_damage(name: str) -> None:
    image, level, _, _ = VALUES[name]
    value = encode_value(image, level)
    for size_bytes in range(len(value)):
        with pytest.raises(DamageError):
            decode_value(value[:size_bytes])


# Rule B.1/7.
@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_invalid_status_is_damage(status: int) -> None:
    value = bytearray(encode_value(ONGOING, 0))
    value[16] = status & 0xFF
    with pytest.raises(DamageError, match="status"):
        decode_value(bytes(value))


# Rule B.1/8.
def test_unknown_tags_are_skipped() -> None:
    value = bytearray(encode_value(V2, 2))
    value[-5:] = bytes.fromhex("03 02 02 0002 03 02 0007 7f 03 616263")
    assert decode_value(bytes(value)) == V2


def test_unknown_types_and_versions_are_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert decode_key(bytes.fromhex("0001 0001 61")) is None
        assert decode_value(bytes.fromhex("0002 00")) is None
    assert len(caplog.records) == 2


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_in_memory_states_are_never_written(state: TransactionState) -> None:
    with pytest.raises(AssertionError):
        encode_value(TransactionImage(1, 1, 1, state, frozenset(), 2), 1)
