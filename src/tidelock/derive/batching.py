"""Small queries that wait for the engine at the same time are asked as one.

Planning a query and starting its tasks costs the engine far more than a few rows do. Members that
are refreshed side by side ask their questions side by side: one of them leads and takes along all
that wait. The answer to several is one row with a list of rows for each.

Invariants: an answer is what the query alone would give; a query that fails does not fail those
that it was asked with; whoever waits is answered, or leads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

TOGETHER_MAX = 16
GATHERING_SECONDS = 0.03
"""How long who leads waits for others of whom it is known that they will ask too: a fraction of
what their questions would cost alone."""

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Ask = Callable[[Sequence[Question]], Sequence[Answer]]


@dataclass(eq=False)
class _Waiting(Generic[Question, Answer]):
    question: Question
    answers: list[Answer] = field(default_factory=list)
    error: Exception | None = None
    called: threading.Event = field(default_factory=threading.Event)
    """Set when it is settled or is to lead."""
    left: bool = False
    """Whether nobody waits for the answer any more."""

    @property
    def settled(self) -> bool:
        return bool(self.answers) or self.error is not None


class Batches(Generic[Question, Answer]):
    """Questions to one engine. Those that come while it answers are asked together, next."""

    def __init__(self, ask: Ask[Question, Answer]) -> None:
        self._ask = ask
        self._mutex = threading.Condition()
        self._waiting: list[_Waiting[Question, Answer]] = []
        self._leader: _Waiting[Question, Answer] | None = None
        self._taking_part = 0

    @contextmanager
    def taking_part(self) -> Iterator[None]:
        """For whoever works its way to a question that others may wait for."""
        with self._mutex:
            self._taking_part += 1
        try:
            yield
        finally:
            with self._mutex:
                self._taking_part -= 1
                self._mutex.notify_all()

    def answer(self, question: Question) -> Answer:
        """The answer, or the error that the question alone meets with."""
        one = _Waiting[Question, Answer](question)
        try:
            with self._mutex:
                self._waiting.append(one)
                self._mutex.notify_all()
                if self._leader is None:
                    self._leader = one
                    one.called.set()
            one.called.wait()
            if not one.settled:
                self._lead(one)
        finally:
            # Also when interrupted: nobody may wait for who has gone.
            self._leave(one)
        if one.error is not None:
            raise one.error
        return one.answers[0]

    def _lead(self, leader: _Waiting[Question, Answer]) -> None:
        with self._mutex:
            self._mutex.wait_for(self._all_are_here, GATHERING_SECONDS)
            self._waiting.remove(leader)
            taken = [leader, *self._waiting[: TOGETHER_MAX - 1]]
            self._waiting = self._waiting[TOGETHER_MAX - 1 :]
        try:
            self._settle(taken)
        finally:
            with self._mutex:
                others = [one for one in taken[1:] if not one.settled and not one.left]
                self._waiting = others + self._waiting
            for one in taken:
                if one.settled:
                    one.called.set()

    def _leave(self, one: _Waiting[Question, Answer]) -> None:
        """No longer wait, and no longer lead: the next one that waits does."""
        with self._mutex:
            one.left = True
            if one in self._waiting:
                self._waiting.remove(one)
            if self._leader is one:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.called.set()

    def _all_are_here(self) -> bool:
        return len(self._waiting) >= min(self._taking_part, TOGETHER_MAX)

    def _settle(self, taken: Sequence[_Waiting[Question, Answer]]) -> None:
        if len(taken) > 1:
            try:
                answers = self._ask([one.question for one in taken])
            except Exception:  # noqa: BLE001
                # One of them is to blame: asked alone, each meets with its own error.
                pass
            else:
                for one, answer in zip(taken, answers, strict=True):
                    one.answers.append(answer)
                return
        for one in taken:
            try:
                one.answers.extend(self._ask([one.question]))
            except Exception as error:  # noqa: BLE001
                one.error = error
