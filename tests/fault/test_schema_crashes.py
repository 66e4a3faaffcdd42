"""A change of schemas that is killed, or fails, at any step: the old contract or the new one.

It renames and swaps tables, renames, adds, fills, widens, moves and drops columns, relaxes one, and
adds and drops rules and tables, in one commit.
"""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import schemas
from tests.support.faulted import check_every_call
from tests.support.lakes import age, check_log, collect_all, copy_lake, run
from tests.support.schemas import ACTOR, Contract, contract

import tidelock
from tidelock.store.objects.failpoints import recorded


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("template") / "lake")
    schemas.make(uri)
    return uri


@pytest.fixture
def copies(template: str, tmp_path: Path) -> Iterator[str]:
    return (copy_lake(template, tmp_path / str(number)) for number in itertools.count())


@pytest.fixture(scope="module")
def contracts(template: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Contract, Contract]:
    """What every table is before the change and after it."""
    uri = copy_lake(template, tmp_path_factory.mktemp("undisturbed") / "lake")
    with tidelock.open(uri) as lake:
        before = contract(lake)
        schemas.change_with(lake)
        after = contract(lake)
    assert set(after) == {"customers", "orders", "purchases"}
    assert set(before) == {"customers", "orders", "old"}
    return before, after


def test_a_change_of_schemas_killed_at_any_step_leaves_the_old_or_the_new_contract(
    copies: Iterator[str], contracts: tuple[Contract, Contract]
) -> None:
    before, after = contracts
    seen: Counter[str] = Counter()
    with recorded() as names:
        schemas.change(next(copies))
    steps = []
    for name in names:
        seen[name] += 1
        steps.append((name, seen[name]))
    assert len(steps) > 40
    put = steps.index(("publish.after_put", 1))
    for number, (name, hit) in enumerate(steps):
        uri = next(copies)
        code = run(schemas.change, uri, failpoints=f"{name}=kill@{hit}")
        assert code == -signal.SIGKILL, f"{name} was not reached (exit code {code})"
        expected = after if number >= put else before
        with tidelock.open(uri, read_only=True) as reader:
            assert contract(reader) in (before, after), name
        age(uri)
        with tidelock.open(uri, actor="the next") as lake:
            assert contract(lake) == expected, name
            assert contract(lake, version=4) == before, name
            schemas.change_with(lake)
            assert contract(lake) == after, name
            assert len([c for c in check_log(lake) if c.actor == ACTOR]) == (expected is after)
            collect_all(lake)
            assert contract(lake) == after, name
            assert lake.verify().ok, name


@pytest.mark.parametrize("when", ["before", "after", "timeout"])
def test_a_fault_at_any_object_operation_is_told_as_it_is(
    copies: Iterator[str], contracts: tuple[Contract, Contract], when: str
) -> None:
    keys = check_every_call(copies, ACTOR, schemas.change_with, contract, contracts, when)
    assert any("schemas/" in key for key in keys)
