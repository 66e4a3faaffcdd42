"""What errors say: what happened, and what to do about it in the words of whoever asked."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from tidelock import errors
from tidelock.errors import Advice, CommitConflict, TidelockError

SOURCES = Path(errors.__file__).parent
ADVICE = Advice("Use lake.run(...), which retries.", "Run the command again.")


def test_an_error_says_what_to_do_in_the_words_of_each_door() -> None:
    error = CommitConflict("Another was first.", ADVICE, table="orders")
    assert str(error) == "Another was first. Use lake.run(...), which retries."
    assert error.told("shell") == "Another was first. Run the command again."
    assert error.message == "Another was first."


def test_an_error_without_advice_is_its_message() -> None:
    error = TidelockError("It failed.")
    assert str(error) == error.told("shell") == "It failed."
    assert "advice" not in error.to_dict()


def test_advice_for_one_door_leaves_nothing_at_the_other() -> None:
    assert TidelockError("It failed.", Advice("Use None.", "")).told("shell") == "It failed."


def test_advice_pickles_and_is_told_as_plain_values() -> None:
    error = pickle.loads(pickle.dumps(CommitConflict("Late.", ADVICE, table="orders")))
    assert error.advice == ADVICE
    assert error.table == "orders"
    assert error.to_dict() == {
        "condition": "COMMIT_CONFLICT",
        "action": "refresh_and_retry",
        "message": "Late. Use lake.run(...), which retries.",
        "advice": "Use lake.run(...), which retries.",
        "table": "orders",
    }
    assert error.to_dict("shell")["message"] == "Late. Run the command again."
    assert error.to_dict("shell")["advice"] == "Run the command again."


@pytest.mark.parametrize("word", [r"lake\.\w+", r"\b\w+=(True|\[)"])
def test_what_is_said_in_a_shell_names_no_call_of_python(word: str) -> None:
    """Held for every Advice that is written as two texts."""
    found = 0
    for file in SOURCES.rglob("*.py"):
        for shell in re.findall(r"Advice\(\s*f?\"[^\"]*\",\s*f?\"([^\"]*)\"", file.read_text()):
            found += 1
            assert not re.search(word, shell), f"{file.name}: {shell}"
    assert found > 10
