"""How long a sink waits after a failure, whatever a clock said when it failed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tidelock.deliver.delivery.plan.outcome import must_wait, trouble_of
from tidelock.errors import DestinationFailed

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("asked", [None, 30.0, 80_000.0], ids=["by itself", "asked", "a day"])
def test_it_waits_as_long_as_it_said_and_no_longer(asked: float | None) -> None:
    evidence = {} if asked is None else {"retry_after_seconds": asked}
    trouble = trouble_of(DestinationFailed("no", **evidence), None, NOW)
    assert must_wait(trouble, NOW)
    assert must_wait(trouble, trouble.retry_at - timedelta(milliseconds=1))
    assert not must_wait(trouble, trouble.retry_at)


@pytest.mark.parametrize("asked", [None, 30.0])
def test_it_does_not_wait_for_a_time_that_a_clock_wrote_which_was_ahead(
    asked: float | None,
) -> None:
    evidence = {} if asked is None else {"retry_after_seconds": asked}
    ahead = NOW + timedelta(days=365)
    assert not must_wait(trouble_of(DestinationFailed("no", **evidence), None, ahead), NOW)
