"""Attributes that are made when they are first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):
    """As functools.cached_property, and made by one thread alone.

    From Python 3.12 on, that one lets two threads make two, and go on with different ones for a
    while. What is made by this has a state of its own, so that there may be one only.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        kept = instance.__dict__
        # Of the instance, so that a fork while another lake makes its own leaves none locked.
        with kept.setdefault(f"making {self._name}", threading.RLock()):
            if self._name not in kept:
                kept[self._name] = self._make(instance)
        made: T = kept[self._name]
        return made
