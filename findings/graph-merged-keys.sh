#!/bin/bash
# Run: the graph database Ladybug 0.22.0 in a Python process. Rows are merged by key, as a micro-batch of records is written so that a
# repetition changes nothing: UNWIND $rows AS row MERGE (t:T {id: row.id}) and so on. The key is in the rows three times, with n of 1, 2, 3.
#
# Seen: 1. MERGE ... SET t.n = row.n: a new key keeps the first row's value, a key of the table gets the last one's. 2,000 keys alike.
#       2. MERGE ... ON CREATE SET t.n = row.n ON MATCH SET t.n = row.n: the last one's, for both.
#       3. A sum, ON CREATE SET t.n = row.n ON MATCH SET t.n = t.n + row.n: a new key gets null. A key with 10 gets 13, not 16.
#
# Surprising, because Cypher takes one row after the other: a row sees what the rows before it have set. Here every row sees what was
# there before the statement, without an error. One statement for each row gives the sum.
. "$(dirname "$0")/lib/common.sh"
python_with ladybug==0.22.0
cat >merge.py <<'PYTHON'
from collections import Counter

import ladybug
from seen import see

SET = "MERGE (t:T {id: row.id}) SET t.n = row.n"
BOTH = "MERGE (t:T {id: row.id}) ON CREATE SET t.n = row.n ON MATCH SET t.n = row.n"
SUM = "MERGE (t:T {id: row.id}) ON CREATE SET t.n = row.n ON MATCH SET t.n = t.n + row.n"
graph = ladybug.Connection(ladybug.Database("graph.db"))
graph.execute("CREATE NODE TABLE T(id INT64 PRIMARY KEY, n INT64)")


def merge(clause, keys=1, old=None, at_once=True):
    """Return how many keys have which value after the merge of three rows for each key."""
    graph.execute("MATCH (t:T) DELETE t")
    if old is not None:
        graph.execute("CREATE (:T {id: 0, n: $old})", {"old": old})
    rows = [{"id": key, "n": n} for n in (1, 2, 3) for key in range(keys)]
    for part in [rows] if at_once else [[row] for row in rows]:
        graph.execute(f"UNWIND $rows AS row {clause}", {"rows": part})
    return dict(Counter(n for [n] in graph.execute("MATCH (t:T) RETURN t.n")))


see("1. SET, a new key", merge(SET), {1: 1})
see("   2,000 new keys", merge(SET, 2000), {1: 2000})
see("   a key of the table", merge(SET, old=0), {3: 1})
see("2. ON CREATE and ON MATCH, a new key", merge(BOTH), {3: 1})
see("   a key of the table", merge(BOTH, old=0), {3: 1})
see("3. a sum, a new key", merge(SUM), {None: 1})
see("   a key of the table, 10", merge(SUM, old=10), {13: 1})
see("   one statement for each row, a new key", merge(SUM, at_once=False), {6: 1})
see("   a key of the table, 10", merge(SUM, old=10, at_once=False), {16: 1})
PYTHON
quietly python merge.py
