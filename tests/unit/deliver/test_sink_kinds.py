"""Kinds of sinks: one entry each, and a class that keeps the protocol."""

from __future__ import annotations

import importlib

import pytest

from tidelock.deliver.destinations.files.formats import FORMATS
from tidelock.deliver.destinations.kinds import KINDS, kind_of
from tidelock.deliver.destinations.protocol import Sink


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_a_class_that_can_be_opened(name: str) -> None:
    module, _, attribute = KINDS[name].sink.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert issubclass(found, Sink)
    assert not found.__abstractmethods__
    assert callable(found.open)


def test_every_format_of_files_is_a_kind_and_none_else_is_one_of_files() -> None:
    assert {name for name, kind in KINDS.items() if kind.address == "files"} == set(FORMATS)


def test_of_a_kind_of_ones_own_nothing_is_known() -> None:
    kind = kind_of("package.module:name")
    assert (kind.address, kind.mostly_waits, kind.extra) == ("elsewhere", False, None)
