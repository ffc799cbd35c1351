"""The ordered list of a log's segments."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from broker_core.log.segment import Segment


class SegmentList:
    """The segments of a log, ordered by base offset; the last one is the active segment."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    @property
    def active(self) -> Segment:
        """Return the active segment, to which batches are appended."""
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that contains `offset`, 0 for offsets below the first segment."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> Iterator[Segment]:
        for at in range(self.index_of(offset), len(self._segments)):
            yield self._segments[at]

    def end_of(self, at: int, log_end_offset: int) -> int:
        """Return the offset at which the segment's range ends."""
        return self._bases[at + 1] if at + 1 < len(self._bases) else log_end_offset

    def batch_base(self, offset: int) -> int:
        """Return the base offset of the batch that contains `offset`, or of the next one; `offset` if there is none."""
        for segment in self.from_offset(offset):
            for _, header, _, _ in segment.headers(segment.position_of(offset)):
                return header.base_offset
        return offset

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, group: Sequence[Segment], replacement: Segment) -> None:
        """Replace consecutive segments with one that has the base offset of the first."""
        at = self._segments.index(group[0])
        self._segments[at : at + len(group)] = [replacement]
        self._bases[at : at + len(group)] = [replacement.base_offset]

    def drop_first(self) -> Segment:
        del self._bases[0]
        return self._segments.pop(0)

    def drop_last(self) -> Segment:
        del self._bases[-1]
        return self._segments.pop()
