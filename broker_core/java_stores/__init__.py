"""Java's key store formats, JKS and PKCS12, which brokers and clients read.

Owns: the entries of a store, private keys and trusted certificates, and the order in which Java lists and uses them.
Uses: `types`; the package cryptography for PKCS12, imported when such a store is read.
Never: opens a file, knows a setting, or writes a store.
"""
