"""Hostile bytes for every parser of bytes.

`targets` lists the parsers and the exceptions with which each may refuse its input. `test_fuzz` feeds a limited number
of mutated and random inputs to each; `__main__` feeds them for a given time, guided by coverage (atheris).
"""
