"""Find transactions that each depend on the other.

An edge goes from the writer of a record to the transaction that read it, and from the writer of a record to the writer
of the next one in the same log. A circle without reads is allowed by Kafka, which isolates no writes; circles of reads
alone (G1c), never.
"""

from collections.abc import Iterator

import networkx

from tests.history.anomalies import Anomaly, Kind
from tests.history.format import FAIL
from tests.history.index import Index, Operation

READS, FOLLOWS = "reads", "follows"


def cycles(index: Index) -> Iterator[Anomaly]:
    """Find one circle in each knot of transactions: first of reads alone, then of writes alone."""
    for edge, kind in ((READS, Kind.CYCLE), (FOLLOWS, Kind.WRITE_CYCLE)):
        graph = _graph(index, edge)
        for knot in networkx.strongly_connected_components(graph):
            if len(knot) > 1:
                circle = networkx.find_cycle(graph.subgraph(knot))
                names = [graph.nodes[each]["operation"].name for each, _ in circle]
                yield Anomaly(kind, f"each {edge} the one before: {' -> '.join([*names, names[0]])}")


def _graph(index: Index, edge: str) -> "networkx.DiGraph":
    graph = networkx.DiGraph()

    def connect(earlier: Operation, later: Operation) -> None:
        if earlier is not later and FAIL not in (earlier.kind, later.kind):
            for each in (earlier, later):
                graph.add_node(id(each), operation=each)
            graph.add_edge(id(earlier), id(later))

    transactions = [each for each in index.operations if each.begin.transaction is not None]
    if edge == READS:
        for reader in transactions:
            for key, records in reader.last.polled():
                for _, value in records:
                    writer = index.writer.get((key, value))
                    if writer is not None:
                        connect(writer, reader)
        return graph
    for key, by_offset in index.values.items():
        writers = [index.writer.get((key, value)) for offset in sorted(by_offset) for value in by_offset[offset]]
        known = [each for each in writers if each is not None and index.took_effect(each)]
        for earlier, later in zip(known, known[1:], strict=False):
            connect(earlier, later)
    return graph
