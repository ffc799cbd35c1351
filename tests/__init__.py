"""Prove what both packages promise, from outside them."""
