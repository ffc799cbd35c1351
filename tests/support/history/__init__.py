"""Histories of what clients did, and the checker that judges them."""
