"""Hostile bytes for every parser of bytes.

`targets` says what is fed, and which exceptions are its declared way to refuse; `test_fuzz` gives each a share of
mutated and random inputs, `__main__` as many as time allows, led by coverage (atheris).
"""
