"""Small queries that wait for the engine at the same time are asked as one.

Planning a query and starting its tasks costs the engine far more than a few rows do. Members that
are refreshed side by side ask their questions side by side: one of them leads and takes along all
that wait. The answer to several is one row with a list of rows for each.

Invariants: an answer is what the query alone would give; a query that fails does not fail those
that it was asked with; every waiting thread is answered, or leads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidelock.store.objects.followers import Followers, Waiter

TOGETHER_MAX = 16
GATHERING_SECONDS = 0.03
"""How long the leader waits for others of whom it is known that they will ask too: a fraction of
what their questions would cost alone."""

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Ask = Callable[[Sequence[Question]], Sequence[Answer]]


@dataclass(eq=False)
class _Asked(Waiter, Generic[Question, Answer]):
    """A question that waits for its answer."""

    question: Question
    answers: list[Answer] = field(default_factory=list)
    error: Exception | None = None

    @property
    def settled(self) -> bool:
        return bool(self.answers) or self.error is not None


class Batches(Generic[Question, Answer]):
    """Questions to one engine. Those that come while it answers are asked together, next."""

    def __init__(self, ask: Ask[Question, Answer]) -> None:
        self._ask = ask
        self.followers: Followers[_Asked[Question, Answer]] = Followers()
        self._counting = threading.Lock()
        self._taking_part = 0

    @contextmanager
    def taking_part(self) -> Iterator[None]:
        """For a thread that works its way to a question that others may wait for."""
        with self._counting:
            self._taking_part += 1
        try:
            yield
        finally:
            with self._counting:
                self._taking_part -= 1
            self.followers.look_again()

    def answer(self, question: Question) -> Answer:
        """The answer, or the error that the question alone meets with."""
        asked = _Asked[Question, Answer](question)
        try:
            self.followers.join(asked)
            if not asked.settled:
                self._lead()
        finally:
            # Also when interrupted: no thread may wait for one that has gone.
            self.followers.leave(asked)
        if asked.error is not None:
            raise asked.error
        return asked.answers[0]

    def _lead(self) -> None:
        self.followers.gather(self._all_are_here, GATHERING_SECONDS)
        taken = self.followers.take(TOGETHER_MAX)
        try:
            self._settle(taken)
        finally:
            self.followers.put_back(taken)
            for asked in taken:
                if asked.settled:
                    asked.call()

    def _all_are_here(self) -> bool:
        return len(self.followers) >= min(self._taking_part, TOGETHER_MAX)

    def _settle(self, taken: Sequence[_Asked[Question, Answer]]) -> None:
        if len(taken) > 1:
            try:
                answers = self._ask([asked.question for asked in taken])
            except Exception:  # noqa: BLE001
                # One of them is to blame: asked alone, each meets with its own error.
                pass
            else:
                for asked, answer in zip(taken, answers, strict=True):
                    asked.answers.append(answer)
                return
        for asked in taken:
            try:
                asked.answers.extend(self._ask([asked.question]))
            except Exception as error:  # noqa: BLE001
                asked.error = error
