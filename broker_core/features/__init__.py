"""The features that the core of the broker does not know.

Owns: one package for each feature.

Uses: the core, at the places that the core keeps open.

Never: is imported by the core, or by another feature. Deleting a feature's folder leaves a broker without it.
"""
