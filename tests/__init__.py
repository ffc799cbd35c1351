"""Tests of both packages, from outside them."""
