"""A real SIGKILL of whoever refreshes, at every step and at any time: all of a group, or nothing.

Each process that dies takes up first what the one before it left, while another one goes on
committing. In the end all of history is walked: nothing was lost, nothing doubled, no version ever
showed members of a group at different frontiers, and epochs count publications.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import refreshers
from tests.support.histories import check_every_version, check_groups, stream_states
from tests.support.lakes import age, check_log, collect_all, copy_lake, end, run, seed_of, start
from tests.support.refreshers import LEASE_SECONDS, TWINS

import tidelock
from tidelock.store.objects.failpoints import recorded

Step = tuple[str, int]
# Steps of these are died at each time they come, all others at the first.
DECIDING = ("refresh.", "publish.", "intent.", "claim.")
KILLS = 6


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("template") / "lake")
    refreshers.make(uri)
    return uri


@pytest.fixture
def lake_uri(template: str, tmp_path: Path) -> Iterator[str]:
    """A lake that somebody commits to."""
    uri = copy_lake(template, tmp_path / "lake")
    writer = start(refreshers.commit_on, uri, 7, lease_seconds=LEASE_SECONDS)
    yield uri
    assert writer.is_alive(), "the writer failed"
    end(writer)


def steps_of(uri: str, full: bool) -> list[Step]:
    seen: Counter[str] = Counter()
    with recorded() as names:
        refreshers.refresh(uri, full)
    steps = []
    for name in names:
        seen[name] += 1
        if name.startswith(DECIDING) or (seen[name] == 1 and not full):
            steps.append((name, seen[name]))
    # What follows the group takes the same steps by delta.
    return steps[: steps.index(("refresh.after_publish", 1)) + 1] if full else steps


@pytest.mark.parametrize("full", [False, True], ids=["by delta", "in full"])
def test_a_refresher_killed_at_any_step_publishes_all_of_a_group_or_nothing(
    template: str, lake_uri: str, tmp_path: Path, full: bool
) -> None:
    steps = steps_of(copy_lake(template, tmp_path / "undisturbed"), full)
    assert {("refresh.after_member", 3), ("publish.after_put", 1)} <= set(steps)
    assert (("intent.after_seal", 1) in steps) == full
    journal = tmp_path / "journal"
    with seed_of() as seed:
        for number, step in enumerate(steps):
            process = start(
                refreshers.recover_and_die,
                lake_uri,
                seed + number,
                step,
                full,
                str(journal),
                lease_seconds=LEASE_SECONDS,
            )
            process.join(timeout=60)
            code = process.exitcode
            end(process)
            assert code == -signal.SIGKILL, f"{step} ended with {code}"
        check_afterwards(lake_uri, journal, len(steps))


def test_a_refresher_killed_at_any_time_publishes_all_of_a_group_or_nothing(
    lake_uri: str, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    with seed_of() as seed:
        chance = random.Random(seed)
        for number in range(KILLS):
            process = start(
                refreshers.refresh_on,
                lake_uri,
                seed + number,
                str(journal),
                lease_seconds=LEASE_SECONDS,
            )
            told = lines_of(journal)
            while lines_of(journal) == told and process.is_alive():
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.6))
            assert process.is_alive(), "the refresher failed"
            end(process)
        check_afterwards(lake_uri, journal, KILLS)


@pytest.mark.parametrize("step", ["intent.after_seal", "publish.before_put"])
def test_a_refresh_that_was_ready_when_it_was_killed_is_published_by_the_next_to_open(
    template: str, tmp_path: Path, step: str
) -> None:
    uri = copy_lake(template, tmp_path / "lake")
    code = run(refreshers.refresh, uri, True, failpoints=f"{step}=kill@1")
    assert code == -signal.SIGKILL
    with tidelock.open(uri) as lake:
        before = lake.groups()[0]
        # Somebody commits meanwhile, so that it is published at another version than it thought.
        refreshers.change(lake, random.Random(3))
    age(uri)
    with tidelock.open(uri, engine="sail") as lake:
        assert [one.outcome for one in lake.recoveries()] == ["rolled_forward"]
        assert check_groups(lake) == {"d": before.epoch + 1}
        assert lake.history("d")[0].epoch == before.epoch + 1
        refreshers.refresh_with(lake)
        assert check_groups(lake) == {"d": before.epoch + 2}
        check_every_version(lake, TWINS)


def lines_of(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


def check_afterwards(uri: str, journal: Path, deaths: int) -> None:
    age(uri)
    with tidelock.open(uri, engine="sail", actor="the last") as lake:
        assert not lake.intents()
        refreshers.refresh_with(lake)
        told = lines_of(journal)
        assert len(told) >= deaths
        for line in told:
            version, *counted = line.split()
            states = stream_states(lake, int(version))
            assert {f"{name}={one.epoch}" for name, one in states.items()} == set(counted), line
        epochs = check_groups(lake)
        assert epochs["d"] >= deaths
        check_log(lake)
        check_every_version(lake, TWINS)
        # What the dead left is collected, and nothing that the living go on from.
        collect_all(lake)
        refreshers.change(lake, random.Random(0))
        refreshers.refresh_with(lake)
        assert lake.history("b")[0].action == "incremental"
        assert lake.groups()[0].epoch == epochs["d"] + 1
