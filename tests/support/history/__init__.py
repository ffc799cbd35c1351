"""Histories of client operations, and a checker for them."""
