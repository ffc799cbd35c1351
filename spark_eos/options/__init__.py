"""Turn the options of a query into frozen values, or say which of them is wrong.

Owns: names, aliases, defaults and bounds of every option; how commands of `eos-kafka` are spelt in messages.
Asks: `errors` and `metrics`; `broker_core` for its vocabulary.
Never: connects to a broker or reads a file.
"""
