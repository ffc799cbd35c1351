"""The readers of JKS and PKCS12, with recorded stores of keytool."""

import random
import sys
from contextlib import suppress

import pytest

from broker_core.java_stores.entries import StoreEntry, StoreError, store_format
from broker_core.java_stores.reader import listed, preferred, read_store
from tests.support.recorded_stores import AUTHORITY, JKS, KEY_PASSWORD, PKCS12, STORE_PASSWORD

DER_KEY = b"\x30"


def shape(entries: list[StoreEntry]) -> list[tuple[str, int, bool]]:
    return [(each.alias, len(each.certificates), each.unlock is not None) for each in entries]


def test_entries_of_jks():
    entries = read_store(JKS, STORE_PASSWORD)
    assert shape(entries) == [("zeta", 2, True), ("authority", 1, False)]
    assert entries[0].certificates[1] == entries[1].certificates[0] == AUTHORITY
    assert entries[0].unlock is not None
    assert entries[0].unlock(KEY_PASSWORD).startswith(DER_KEY)
    with pytest.raises(StoreError, match="does not decrypt the private key"):
        entries[0].unlock(STORE_PASSWORD)


def test_entries_of_pkcs12_with_several_keys():
    entries = read_store(PKCS12, STORE_PASSWORD)
    assert shape(entries) == [("zeta", 2, True), ("alpha", 2, True), ("authority", 1, False)]
    assert len({each.certificates[0] for each in entries}) == 3
    assert [each.certificates[-1] for each in entries] == [AUTHORITY] * 3
    keys = [each.unlock(STORE_PASSWORD) for each in entries if each.unlock]
    assert len(set(keys)) == 2
    assert entries[0].unlock is not None
    with pytest.raises(StoreError, match="does not decrypt the private key"):
        entries[0].unlock(KEY_PASSWORD)


def test_a_wrong_password_is_refused():
    with pytest.raises(StoreError, match="the password is wrong, or the file is damaged"):
        read_store(JKS, "wrong")
    for password in ("wrong", None):
        with pytest.raises(StoreError, match="Invalid password or PKCS12 data"):
            read_store(PKCS12, password)


def test_jks_needs_no_password_for_certificates():
    assert [each.alias for each in read_store(JKS, None)] == ["zeta", "authority"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (JKS, "JKS"),
        (PKCS12, "PKCS12"),
        # A PKCS12 store without entries has no more than 127 bytes.
        (b"0e\x02\x01\x03", "PKCS12"),
        (b"\xce\xce\xce\xce", "JCEKS"),
        (b"-----BEGIN", None),
        (b"0 is text", None),
        (b"0", None),
        (b"", None),
    ],
)
def test_the_content_shows_the_format(data: bytes, expected: str | None):
    assert store_format(data) == expected


def test_other_content_is_refused():
    for data in (b"-----BEGIN CERTIFICATE-----", b"", b"\xce\xce\xce\xce"):
        with pytest.raises(StoreError, match="neither JKS nor PKCS12"):
            read_store(data, None)


def test_no_key_is_shown():
    assert "unlock" not in repr(read_store(JKS, STORE_PASSWORD))


def test_pkcs12_alone_needs_cryptography(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    assert read_store(JKS, STORE_PASSWORD)
    with pytest.raises(ImportError):
        read_store(PKCS12, STORE_PASSWORD)


@pytest.mark.parametrize(("data", "step"), [(JKS, 1), (PKCS12, 97)], ids=["JKS", "PKCS12"])
def test_a_store_that_is_cut_off_is_one_kind_of_error(data: bytes, step: int):
    for size in range(0, len(data), step):
        with pytest.raises(StoreError):
            read_store(data[:size], STORE_PASSWORD)
        with suppress(StoreError):
            read_store(data[:size], None)


def test_any_damage_to_jks_is_one_kind_of_error():
    chance = random.Random(1)
    for _ in range(2_000):
        changed = bytearray(JKS)
        changed[chance.randrange(300 if chance.random() < 0.5 else len(JKS))] ^= 1 << chance.randrange(8)
        with suppress(StoreError):
            for each in read_store(bytes(changed), None):
                if each.unlock is not None:
                    each.unlock(KEY_PASSWORD)


# What Java 17 prints for the keys of a `Hashtable` and of a `HashMap` to which these are added in this order.
ORDERS = [
    ("zeta broker-1 alpha", "broker-1 zeta alpha", "zeta alpha broker-1"),
    (
        "a b c d e f g h i j k l m n o p q r s t",
        "t s r q p o n m l k j i h g f e d c b a",
        "a b c d e f g h i j k l m n o p q r s t",
    ),
    (
        "server authority intermediate kafka.example client-1 client-2 mykey caroot x Aa BB 1 2 3 \u00e9\u00e9\u00e9",
        "BB Aa server intermediate kafka.example \u00e9\u00e9\u00e9 authority caroot 3 x 2 mykey 1 client-2 client-1",
        "Aa BB server client-1 \u00e9\u00e9\u00e9 mykey kafka.example 1 2 3 client-2 authority intermediate x caroot",
    ),
]


@pytest.mark.parametrize(("added", "in_hashtable", "in_hash_map"), ORDERS)
def test_orders_are_those_of_java(added: str, in_hashtable: str, in_hash_map: str):
    entries = [StoreEntry(alias, ()) for alias in added.split()]
    assert [each.alias for each in listed(entries, "JKS")] == in_hashtable.split()
    assert [each.alias for each in listed(entries, "PKCS12")] == added.split()
    assert [each.alias for each in preferred(entries)] == in_hash_map.split()
