"""The live console: `eos-kafka console`, a web page on loopback about the transactions of a cluster.

Owns: what is polled, how often and for how long it is kept; the pages; the local server and who may use it.

Uses: the commands' own verdicts, plans and drawing, so that a page and a command never disagree.

Never: sends more requests than its budget, listens on another address than loopback, or changes anything without
`--allow-changes` and a confirmed plan.
"""
