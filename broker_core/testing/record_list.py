"""Lists of records that convert to dictionaries, Arrow tables and pandas frames."""

from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

from broker_core.broker.monitoring.inspection import RecordView
from broker_core.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas
    import pyarrow


class RecordList(list[RecordView]):
    """Records in the order of their partitions and offsets, as `EmbeddedBroker.records` returns them.

    >>> from broker_core import EmbeddedBroker
    >>> with EmbeddedBroker() as kafka:
    ...     _ = kafka.produce("orders", [("42", "one"), ("42", None)])
    ...     kafka.records("orders").values, kafka.records("orders")[0].key
    ([b'one', None], b'42')
    """

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> RecordView: ...
    @overload
    def __getitem__(self, index: slice, /) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> RecordView | Self:
        found = super().__getitem__(index)
        return type(self)(found) if isinstance(found, list) else found

    @property
    def values(self) -> list[bytes | None]:
        """The values of the records."""
        return [each.value for each in self]

    @property
    def keys(self) -> list[bytes | None]:
        """The keys of the records."""
        return [each.key for each in self]

    def dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary for each record: topic, partition, offset, timestamp_ms, key, value and headers.

        The headers are a list of pairs, because a name may occur several times.
        """
        return [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "timestamp_ms": each.timestamp_ms,
                "key": each.key,
                "value": each.value,
                "headers": list(each.headers),
            }
            for each in self
        ]

    def to_arrow(self) -> "pyarrow.Table":
        """Return an Arrow table with the columns of Spark's Kafka source, except timestampType.

        They are key, value, topic, partition, offset, timestamp (in UTC) and headers. Raises ImportError without
        pyarrow.
        """
        try:
            import pyarrow
        except ModuleNotFoundError as error:
            raise MissingExtraError("pyarrow", "arrow") from error
        header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
        columns = {
            "key": (pyarrow.binary(), self.keys),
            "value": (pyarrow.binary(), self.values),
            "topic": (pyarrow.string(), [each.topic for each in self]),
            "partition": (pyarrow.int32(), [each.partition for each in self]),
            "offset": (pyarrow.int64(), [each.offset for each in self]),
            "timestamp": (pyarrow.timestamp("ms", "UTC"), [each.timestamp_ms for each in self]),
            "headers": (
                pyarrow.list_(header),
                [[{"key": name, "value": value} for name, value in each.headers] for each in self],
            ),
        }
        return pyarrow.table({name: pyarrow.array(data, kind) for name, (kind, data) in columns.items()})

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas frame with the columns of `to_arrow`; raises ImportError without pandas and pyarrow."""
        return self.to_arrow().to_pandas()
