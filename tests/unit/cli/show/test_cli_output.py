"""What people see: tables that fit, and records where they do not."""

from __future__ import annotations

import sys

import pytest
from rich.console import Console

from tidelock.cli.output import Output


def shown(capsys: pytest.CaptureFixture[str], width: int, rows: list[list[object]]) -> list[str]:
    output = Output()
    output.console = Console(file=sys.stdout, width=width, highlight=False, markup=False)
    output.rows(["id", "text", "amount"], rows, [True, False, True])
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_numbers_stand_at_the_right_and_null_is_told_from_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert shown(capsys, 80, [[1, "NULL", "1.50"], [20, None, None], [3, "[bold]x", "10.00"]]) == [
        "id   text      amount",
        "─────────────────────",
        " 1   'NULL'      1.50",
        "20   NULL        NULL",
        " 3   [bold]x    10.00",
    ]


def test_long_text_is_folded_and_numbers_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, 60, [[1234567890, "word " * 10 + "word", "12345678.90"]])
    assert lines[2].startswith("1234567890   word word")
    assert lines[2].endswith("12345678.90")
    assert len(lines) > 3


def test_what_is_too_wide_for_a_table_is_shown_as_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert shown(capsys, 20, [[1, "x" * 30, None]]) == [
        "row 1",
        "  id      1",
        f"  text    {'x' * 30}",
        "  amount  NULL",
    ]


def test_nothing_in_data_acts_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, 80, [[1, "\x1b[2J\a", "0"]])
    assert "\\x1b[2J\\x07" in lines[2]
    Output().facts([("name", "a\x1bb")])
    Output().listing(["name"], [["a\x1bb"]], "")
    assert "\x1b" not in capsys.readouterr().out


def listed(capsys: pytest.CaptureFixture[str], width: int, reason: str, whole: str) -> list[str]:
    output = Output()
    output.console = Console(file=sys.stdout, width=width, highlight=False, markup=False)
    output.listing(["table", "seconds", "reason"], [["totals", "0.10", reason]], "", whole)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_sentence_is_cut_between_words_where_the_listing_leaves_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reason = "the last order divides by zero, and so there is no share of it"
    assert listed(capsys, 60, reason, "tidelock show")[2] == (
        "totals      0.10   the last order divides by zero, and…"
    )
    assert listed(capsys, 100, reason, "tidelock show")[2] == f"totals      0.10   {reason}"


def test_a_sentence_without_room_stands_below_the_table_in_full(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert listed(capsys, 40, "the last order divides by zero, and so on", "tidelock show") == [
        "table    seconds",
        "────────────────",
        "totals      0.10",
        "totals: the last order divides by zero,",
        "and so on",
    ]
