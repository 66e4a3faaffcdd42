"""Posts: whoever holds one keeps it, and the dead are not waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidelock.store.leases import processes, single_holder
from tidelock.store.leases.processes import has_died, own_process
from tidelock.store.leases.single_holder import Post
from tidelock.store.objects.kinds.local import LocalObjects
from tidelock.store.objects.protocol import ObjectInfo, Objects

LEASE_SECONDS = 3600.0


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return LocalObjects(str(tmp_path))


def held_by(objects: Objects, code: str) -> None:
    """Let another process take a post and end as its code says."""
    program = (
        "import os, sys; from tidelock.store.objects.kinds.local import LocalObjects;"
        "from tidelock.store.leases.single_holder import Post;"
        f"assert Post(LocalObjects({objects.uri!r}), 'p', {LEASE_SECONDS}).take() is None;"
        f"{code}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ))


def test_a_post_of_a_process_that_died_is_taken_at_once(objects: Objects) -> None:
    held_by(objects, "os._exit(0)")
    assert Post(objects, "p", LEASE_SECONDS).take() is None


def test_a_post_of_a_process_that_lives_is_told_with_its_times(objects: Objects) -> None:
    began = datetime.now(UTC)
    assert Post(objects, "p", LEASE_SECONDS).take() is None
    holder = Post(objects, "p", LEASE_SECONDS).take()
    assert holder is not None
    assert holder.since is not None
    assert holder.until is not None
    assert began <= holder.since <= datetime.now(UTC)
    assert 3590 < (holder.until - began).total_seconds() < 3610


def test_a_process_of_another_machine_or_container_is_not_taken_for_dead() -> None:
    boot, space, pid, began = own_process().split("/")
    assert not has_died(own_process())
    gone = "4194999"
    assert has_died(f"{boot}/{space}/{gone}/{began}")
    assert has_died(f"{boot}/{space}/{pid}/1"), "the id was given out again"
    assert not has_died(f"{boot}/pid:[1]/{gone}/{began}")
    assert not has_died(f"other/{space}/{gone}/{began}")
    for odd in ("", "host:1", f"{boot}/{space}//{began}", "/1/1"):
        assert not has_died(odd)


def test_a_process_that_ended_and_was_not_waited_for_has_died() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        name = own_process().replace(f"/{os.getpid()}/", f"/{child.pid}/").rpartition("/")[0]
        name = f"{name}/{processes._began(child.pid)}"
        assert not has_died(name)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert has_died(name)


def test_whoever_is_suspended_while_it_renews_has_lost_its_post(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    monkeypatch.setattr(single_holder, "boot_seconds", lambda: seconds[0])
    post = Post(objects, "p", lease_seconds=10)
    assert post.take() is None
    assert post.renew()
    look = Post._newest

    def look_and_sleep(self: Post) -> ObjectInfo | None:
        found = look(self)
        seconds[0] += 20
        return found

    monkeypatch.setattr(Post, "_newest", look_and_sleep)
    assert not post.renew()
    assert not post.is_held()
