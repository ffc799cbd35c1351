"""Numbers as Java reads and prints them."""

import math

import pytest

from broker_core.java_values import double_text, parse_double, parse_whole, trim


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5f", 0.5),
        ("0.5D", 0.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("+1e-1", 0.1),
        ("0x1p-1", 0.5),
        ("-0X.8P0d", -0.5),
        ("0xfp0", 15.0),
        ("0x1p9999", math.inf),
        ("-0x1p9999", -math.inf),
        ("-Infinity", -math.inf),
        ("1e400", math.inf),
    ],
)
def test_doubles_that_java_reads(text: str, value: float):
    assert parse_double(text) == value


def test_not_a_number_is_a_double():
    assert all(math.isnan(parse_double(text) or 0) for text in ("NaN", "+NaN", "-NaN"))


@pytest.mark.parametrize("text", ["", ".", "e1", "1e", "0x1", "0xp1", "f", "nan", "inf", "NaNf", "1_0", "0.5L", " 1"])
def test_texts_that_are_no_doubles(text: str):
    assert parse_double(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (2.0, "2.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (-1e-5, "-1.0E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_doubles_are_printed_as_by_java(value: float, text: str):
    assert double_text(value) == text


def test_whole_numbers_have_digits_of_any_script_and_no_separators():
    assert [parse_whole(text) for text in ("+5", "-0", "005", "\u0665")] == [5, 0, 5, 5]
    assert [parse_whole(text) for text in ("", "+", "--5", "5_0", "5L", "5.0", " 5")] == [None] * 7


def test_a_number_with_more_digits_than_python_reads_is_none():
    assert parse_whole("9" * 5000) is None


def test_only_what_java_trims_is_trimmed():
    assert trim("\x01\t 5\n ") == "5"
    assert trim("5\xa0") == "5\xa0"
