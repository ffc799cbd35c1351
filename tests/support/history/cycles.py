"""Cycles of transactions that depend on each other.

An edge goes from the writer of a record to the transaction that read it, and from the writer of a record to the writer
of the next one in the same log. Kafka allows cycles without reads, because it does not isolate writes, and cycles of
both kinds of edges, but never cycles of reads alone (G1c).
"""

import itertools
from collections import deque
from collections.abc import Iterator

import networkx

from tests.support.history.anomalies import Anomaly, Kind
from tests.support.history.format import FAIL
from tests.support.history.index import Index, Operation

READS, FOLLOWS = "reads", "follows"
_BOTH = frozenset({READS, FOLLOWS})


def cycles(index: Index) -> Iterator[Anomaly]:
    """Yield one cycle of each strongly connected component: of reads alone, of writes alone, and of both."""
    graphs = {READS: _reads(index), FOLLOWS: _follows(index)}
    for edge, kind in ((READS, Kind.CYCLE), (FOLLOWS, Kind.WRITE_CYCLE)):
        for component in _components(graphs[edge]):
            circle = networkx.find_cycle(graphs[edge].subgraph(component))
            names = [graphs[edge].nodes[each]["operation"].name for each, _ in circle]
            yield Anomaly(kind, f"each {edge} the one before: {' -> '.join([*names, names[0]])}")
    if not all(graph.number_of_edges() for graph in graphs.values()):
        return
    union = networkx.compose(graphs[READS], graphs[FOLLOWS])
    for component in _components(union):
        walk = _mixed_walk(graphs, component)
        if walk is not None:
            story = [union.nodes[walk[0][0]]["operation"].name]
            story += [f"which {union.nodes[each]['operation'].name} {edge}" for each, edge in walk[1:]]
            yield Anomaly(Kind.MIXED_CYCLE, ", ".join(story))


def _components(graph: "networkx.DiGraph") -> list[set[int]]:
    return [component for component in networkx.strongly_connected_components(graph) if len(component) > 1]


def _mixed_walk(graphs: "dict[str, networkx.DiGraph]", component: set[int]) -> list[tuple[int, str]] | None:
    """Return the shortest cycle that has edges of both kinds."""
    if not all(graph.subgraph(component).number_of_edges() for graph in graphs.values()):
        return None
    shortest: list[tuple[int, str]] | None = None
    for start in sorted(component):
        waiting: deque[tuple[list[tuple[int, str]], frozenset[str]]] = deque([([(start, "")], frozenset())])
        been = {(start, frozenset[str]())}
        while waiting:
            walk, used = waiting.popleft()
            if shortest is not None and len(walk) >= len(shortest):
                break
            if walk[-1][0] == start and used == _BOTH:
                shortest = walk
                break
            for edge, graph in graphs.items():
                for after in graph.successors(walk[-1][0]) if walk[-1][0] in graph else ():
                    place = (after, used | {edge})
                    if after in component and place not in been:
                        been.add(place)
                        waiting.append(([*walk, (after, edge)], used | {edge}))
    return shortest


def _connect(graph: "networkx.DiGraph", earlier: Operation, later: Operation) -> None:
    if earlier is not later and FAIL not in (earlier.kind, later.kind):
        for each in (earlier, later):
            graph.add_node(each.begin.index, operation=each)
        graph.add_edge(earlier.begin.index, later.begin.index)


def _reads(index: Index) -> "networkx.DiGraph":
    graph = networkx.DiGraph()
    for reader in index.operations:
        if reader.begin.transaction is not None:
            for key, records in reader.last.polled():
                for _, value in records:
                    writer = index.writer.get((key, value))
                    if writer is not None:
                        _connect(graph, writer, reader)
    return graph


def _follows(index: Index) -> "networkx.DiGraph":
    graph = networkx.DiGraph()
    for key, by_offset in index.values.items():
        writers = [index.writer.get((key, value)) for offset in sorted(by_offset) for value in by_offset[offset]]
        known = [each for each in writers if each is not None and index.took_effect(each)]
        for earlier, later in itertools.pairwise(known):
            _connect(graph, earlier, later)
    return graph
