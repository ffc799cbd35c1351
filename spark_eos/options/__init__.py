"""The options of a query, parsed into frozen values or refused with an error.

Owns: names, aliases, defaults and bounds of every option; the spelling of `eos-kafka` commands in messages.

Uses: `errors` and `metrics`; `broker_core` for its vocabulary.

Never: connects to a broker or reads a file.
"""
