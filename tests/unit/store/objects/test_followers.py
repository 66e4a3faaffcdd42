"""A leader and its followers: one does the work of all that wait, and nobody waits in vain."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tidelock.store.objects.followers import Followers, Waiter


@dataclass(eq=False)
class Job(Waiter):
    number: int
    done_by: int | None = None

    @property
    def settled(self) -> bool:
        return self.done_by is not None


def work(followers: Followers[Job], job: Job, at_once: int = 8) -> int:
    """Have a job done, by itself or by another; who did it."""
    try:
        followers.join(job)
        while not job.settled:
            taken = followers.take(at_once)
            for one in taken:
                one.done_by = job.number
            for one in taken:
                one.call()
    finally:
        followers.leave(job)
    assert job.done_by is not None
    return job.done_by


def wait_for(followers: Followers[Job], count: int) -> None:
    while len(followers) < count:
        threading.Event().wait(0.001)


def test_who_comes_alone_leads_at_once() -> None:
    followers: Followers[Job] = Followers()
    assert work(followers, Job(1)) == 1
    assert work(followers, Job(2)) == 2


def test_what_waits_is_done_by_the_next_leader() -> None:
    followers: Followers[Job] = Followers()
    first = Job(0)
    followers.join(first)
    assert followers.take(8) == [first]
    with ThreadPoolExecutor(5) as pool:
        others = [pool.submit(work, followers, Job(number)) for number in range(1, 6)]
        wait_for(followers, 5)
        first.done_by = 0
        followers.leave(first)
        done_by = {other.result(10) for other in others}
    assert len(done_by) == 1, "the first of the line leads for all"
    assert len(followers) == 0


def test_a_leader_takes_so_many_and_the_rest_gets_a_leader_of_its_own() -> None:
    followers: Followers[Job] = Followers()
    first = Job(0)
    followers.join(first)
    followers.take(1)
    with ThreadPoolExecutor(6) as pool:
        others = [pool.submit(work, followers, Job(number), 2) for number in range(1, 7)]
        wait_for(followers, 6)
        followers.leave(first)
        assert len({other.result(10) for other in others}) == 3


def test_what_an_interrupted_leader_had_taken_is_first_again_but_for_who_left() -> None:
    followers: Followers[Job] = Followers()
    jobs = [Job(number) for number in range(4)]
    followers.join(jobs[0])
    followers._waiting.extend(jobs[1:3])
    taken = followers.take(8)
    followers._waiting.append(jobs[3])
    jobs[1].done_by = 0
    followers.leave(jobs[0])
    followers.put_back(taken)
    assert followers.take(8) == [jobs[2], jobs[3]]


def test_a_leader_that_leaves_is_followed_by_the_first_that_waits() -> None:
    followers: Followers[Job] = Followers()
    first = Job(0)
    followers.join(first)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(work, followers, Job(1))
        wait_for(followers, 2)
        followers.leave(first)
        assert second.result(10) == 1
    assert not first.settled


def test_a_leader_may_wait_a_while_for_those_that_will_come() -> None:
    followers: Followers[Job] = Followers()
    leader = Job(0)
    followers.join(leader)
    with ThreadPoolExecutor(2) as pool:
        gathered = pool.submit(followers.gather, lambda: len(followers) == 2, 10)
        second = pool.submit(work, followers, Job(1))
        gathered.result(10)
        for job in followers.take(8):
            job.done_by = 0
            job.call()
        followers.leave(leader)
        assert second.result(10) == 0


def test_a_leader_that_gathers_looks_again_when_it_is_told_to() -> None:
    followers: Followers[Job] = Followers()
    complete = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        gathered = pool.submit(followers.gather, complete.is_set, 10)
        complete.set()
        while not gathered.done():
            followers.look_again()
        gathered.result()
