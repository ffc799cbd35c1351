"""Errors survive the transfer between processes, and every code is classified according to rules I.3."""

import pickle

import pytest

import spark_eos.errors
from broker_core.errors import ErrorCode
from spark_eos.client.error_table import (
    DEFAULTS,
    TABLE,
    Api,
    Verdict,
    classify,
    code_name,
    explained,
    failure,
    worst_code,
)
from spark_eos.errors import (
    AbortableError,
    AuthorizationError,
    BrokerError,
    EosKafkaError,
    FencedError,
    OptionError,
    RecordTooLargeError,
    TopicError,
    UnsupportedError,
)

FAMILIES = [
    each for each in vars(spark_eos.errors).values() if isinstance(each, type) and issubclass(each, EosKafkaError)
]
RETRIABLE, REFRESH, ABORTABLE = Verdict.RETRIABLE, Verdict.REFRESH, Verdict.ABORTABLE
FENCED, FATAL, SPLIT, SUCCESS = Verdict.FENCED, Verdict.FATAL, Verdict.SPLIT, Verdict.SUCCESS

# Written from rules I.3, not from the table: the verdict of each transactional exchange by code.
COLUMNS = (Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS, Api.ADD_OFFSETS, Api.END_TXN, Api.TXN_OFFSET_COMMIT)
ROWS = {
    0: (SUCCESS,) * 5,
    **dict.fromkeys((3, 5, 6, 13, 14, 19, 20, 51, 56, 89), (RETRIABLE,) * 5),
    7: (RETRIABLE, RETRIABLE, RETRIABLE, RETRIABLE, REFRESH),
    **dict.fromkeys((15, 16), (REFRESH,) * 5),
    **dict.fromkeys((47, 90), (FENCED,) * 5),
    **dict.fromkeys((35, 48, 49, 53), (FATAL,) * 5),
    **dict.fromkeys((22, 25, 69, 82, 113), (FATAL, ABORTABLE, FATAL, FATAL, ABORTABLE)),
    **dict.fromkeys((29, 31, 43, 50, 55, 9999), (FATAL, ABORTABLE, FATAL, FATAL, FATAL)),
    30: (FATAL, ABORTABLE, ABORTABLE, FATAL, ABORTABLE),
    59: (FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    120: (ABORTABLE,) * 5,
}
PRODUCE = {
    0: SUCCESS,
    **dict.fromkeys((2, 7, 13, 14, 15, 16, 19, 20, 51, 89), RETRIABLE),
    **dict.fromkeys((3, 5, 6, 9, 56, 74, 75, 100, 103), REFRESH),
    **dict.fromkeys((10, 18), SPLIT),
    **dict.fromkeys((-1, 17, 29, 32, 45, 46, 48, 59, 76, 87, 120, 9999), ABORTABLE),
    **dict.fromkeys((31, 35, 43, 49, 53), FATAL),
    **dict.fromkeys((47, 90), FENCED),
}
LOOK_UP_APIS = (
    Api.FIND_COORDINATOR,
    Api.DESCRIBE_TRANSACTIONS,
    Api.LIST_TRANSACTIONS,
    Api.OFFSET_FETCH,
    Api.OFFSET_COMMIT,
    Api.CREATE_TOPICS,
    Api.DESCRIBE_CONFIGS,
)
LOOK_UPS = {
    # Codes that any broker may return temporarily; rows of a single exchange, below, take precedence.
    **{(api, code): RETRIABLE for api in LOOK_UP_APIS for code in (3, 5, 6, 7, 13, 14, 19, 20, 51, 56, 89)},
    **{(api, code): REFRESH for api in LOOK_UP_APIS for code in (15, 16)},
    (Api.FIND_COORDINATOR, 120): ABORTABLE,
    (Api.FIND_COORDINATOR, 53): FATAL,
    (Api.FIND_COORDINATOR, 30): FATAL,
    **{(api, -1): RETRIABLE for api in LOOK_UP_APIS if api not in (Api.OFFSET_COMMIT, Api.CREATE_TOPICS)},
    (Api.DESCRIBE_TRANSACTIONS, 105): FATAL,
    (Api.LIST_TRANSACTIONS, 15): RETRIABLE,
    (Api.LIST_TRANSACTIONS, 128): FATAL,
    (Api.OFFSET_FETCH, 88): RETRIABLE,
    (Api.OFFSET_FETCH, 30): FATAL,
    (Api.OFFSET_COMMIT, 7): REFRESH,
    (Api.OFFSET_COMMIT, 22): FATAL,
    (Api.OFFSET_COMMIT, 25): FATAL,
    (Api.OFFSET_COMMIT, 30): FATAL,
    (Api.CREATE_TOPICS, 41): RETRIABLE,
    (Api.CREATE_TOPICS, 38): FATAL,
    (Api.DESCRIBE_CONFIGS, 3): FATAL,
    (Api.DESCRIBE_CONFIGS, 29): FATAL,
}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_error_family_survives_pickling(family: type[EosKafkaError]) -> None:
    error = family("It broke", checked="Two things", remedy="Restart it", error_code=47)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is family
    assert str(copy) == str(error) == "It broke. Two things. Restart it."
    assert (copy.happened, copy.checked, copy.remedy, copy.error_code) == ("It broke", "Two things", "Restart it", 47)


def test_an_error_has_its_address_and_a_users_notes_after_pickling() -> None:
    error = OptionError("Broker 7 does not exist or does not run")
    error.add_note("in the job of the night")
    for each in (error, pickle.loads(pickle.dumps(error)), pickle.loads(pickle.dumps(OptionError(error.happened)))):
        assert each.__notes__[0] == "See docs/reference/errors.md#broker-does-not-exist-or-does-not-run"
    assert pickle.loads(pickle.dumps(error)).__notes__[1:] == ["in the job of the night"]
    assert not hasattr(error, "node")


def test_default_remedy_appears_once_in_a_rewrapped_error() -> None:
    error = spark_eos.errors.UnreachableError("No broker answered")
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))
    assert str(copy) == str(error)
    assert str(error).count("Check that the brokers are running") == 1


def test_a_refused_option_is_a_value_error() -> None:
    assert issubclass(OptionError, ValueError)


# Rules I.3/1, I.3/2, I.3/3, I.3/4, I.3/5, I.3/6, I.3/7, I.3/8 and I.3/9.
def test_transactional_error_table_row() -> None:
    assert {code: tuple(classify(api, code) for api in COLUMNS) for code in ROWS} == ROWS


# Rules I.3 produce/1, I.3 produce/2, I.3 produce/3, I.3 produce/4, I.3 produce/5, I.3 produce/6 and I.3 produce/7.
def test_produce_error_table_row() -> None:
    assert {code: classify(Api.PRODUCE, code) for code in PRODUCE} == PRODUCE


def test_lookup_error_table_row() -> None:
    assert {(api, code): classify(api, code) for api, code in LOOK_UPS} == LOOK_UPS


@pytest.mark.parametrize("api", Api)
def test_every_error_table_row_is_tested(api: Api) -> None:
    tested = {
        **{each: set(ROWS) for each in COLUMNS},
        Api.PRODUCE: set(PRODUCE),
        **{each: {code for of, code in LOOK_UPS if of is each} for each in LOOK_UP_APIS},
    }
    assert {int(code) for code in TABLE[api]} <= tested[api]


# Rules I.3/10 and I.3 produce/8.
@pytest.mark.parametrize("api", Api)
def test_codes_without_a_row_get_the_default_action(api: Api) -> None:
    absent = [code for code in ErrorCode if code not in TABLE[api] and code is not ErrorCode.NONE]
    assert absent
    assert {classify(api, code) for code in absent} == {DEFAULTS[api]}
    assert DEFAULTS[api] in (FATAL, ABORTABLE)


@pytest.mark.parametrize(
    ("api", "code", "family"),
    [
        (Api.PRODUCE, 47, FencedError),
        (Api.END_TXN, 90, FencedError),
        (Api.PRODUCE, 10, RecordTooLargeError),
        (Api.PRODUCE, 120, AbortableError),
        (Api.PRODUCE, 29, AuthorizationError),
        (Api.INIT_PRODUCER_ID, 53, AuthorizationError),
        (Api.PRODUCE, 3, TopicError),
        (Api.PRODUCE, 35, UnsupportedError),
        (Api.INIT_PRODUCER_ID, 50, BrokerError),
        (Api.INIT_PRODUCER_ID, 9999, BrokerError),
    ],
)
def test_error_code_maps_to_an_error_of_its_family(api: Api, code: int, family: type[EosKafkaError]) -> None:
    error = failure(api, code, "transactional id 'a'", detail="the broker's words")
    assert type(error) is family
    assert error.error_code == code
    for part in (api.value, "transactional id 'a'", code_name(code), "the broker's words"):
        assert part in str(error)


def test_one_fatal_code_outweighs_retriable_ones() -> None:
    assert worst_code(Api.TXN_OFFSET_COMMIT, [0, 16, 90, 14]) == 90
    assert worst_code(Api.TXN_OFFSET_COMMIT, [0, 16, 0]) == 16
    assert worst_code(Api.TXN_OFFSET_COMMIT, []) == 0


def test_code_is_explained_where_its_name_does_not_say_what_to_do() -> None:
    assert explained(Api.FIND_COORDINATOR, 15) == code_name(15)
    said = explained(Api.DESCRIBE_TRANSACTIONS, 14)
    assert said.startswith(f"{code_name(14)}: the coordinator has not read its partition yet. If that lasts, ")
