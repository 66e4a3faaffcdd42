"""Exit codes are a contract with scripts."""

from __future__ import annotations

import pytest

from tidelock import errors
from tidelock.cli import failures

FAMILIES = {
    errors.InputError: 3,
    errors.ConflictError: 4,
    errors.OutcomeUnknown: 5,
    errors.StoreError: 6,
    errors.FormatError: 7,
    errors.EngineError: 8,
    errors.RefreshFailed: 9,
    errors.DeliveryError: 10,
    errors.SourceError: 11,
}


def every_error() -> list[type[errors.TidelockError]]:
    found: list[type[errors.TidelockError]] = [*errors.TidelockError.__subclasses__()]
    for kind in found:
        found.extend(kind.__subclasses__())
    return found


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_an_error_ends_with_the_code_of_its_family(kind: type[errors.TidelockError]) -> None:
    family = next(family for family in FAMILIES if issubclass(kind, family))
    assert failures.exit_code(kind("it happened")) == FAMILIES[family]


def test_what_is_not_ours_ends_with_one() -> None:
    assert failures.exit_code(RuntimeError("it happened")) == 1
    assert failures.exit_code(errors.BrokenInvariant("a bug")) == 1


def test_the_table_lists_every_code_once() -> None:
    codes = [code for code, _ in failures.EXIT_CODES]
    assert codes == sorted(set(codes))
    assert set(FAMILIES.values()) < set(codes)


def test_an_error_is_told_in_a_line_without_a_traceback() -> None:
    error = errors.TableNotFound("There is no table 'x'.", table="x")
    assert failures.tell(error, as_json=False, debug=False) == "error: There is no table 'x'."


def test_an_unexpected_error_says_how_to_learn_more() -> None:
    told = failures.tell(KeyError("x"), as_json=False, debug=False)
    assert told.splitlines() == [
        "error: KeyError: 'x'",
        "This is unexpected. Run it again with --debug to see where it came from.",
    ]


def test_debugging_shows_where_an_error_came_from() -> None:
    try:
        raise errors.TableNotFound("There is no table 'x'.", table="x")
    except errors.TableNotFound as error:
        told = failures.tell(error, as_json=False, debug=True)
    assert told.startswith("Traceback")
    assert told.endswith("error: There is no table 'x'.")


def test_options_are_looked_for_before_a_double_dash_only() -> None:
    assert failures.wants_json(["log", "--json"])
    assert not failures.wants_json(["sql", "--", "--json"])
