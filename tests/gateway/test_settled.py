"""What a process loads is kept from the collector, which works again afterwards."""

from __future__ import annotations

import gc
import importlib

import pytest

from gateway.settled import loading


def test_what_is_loaded_is_never_walked() -> None:
    before = gc.get_freeze_count()
    with loading():
        made = [[number] for number in range(1_000)]
    assert gc.get_freeze_count() >= before + len(made)
    assert gc.isenabled()


def test_a_load_that_fails_leaves_the_collector_at_work() -> None:
    with pytest.raises(ModuleNotFoundError), loading():
        importlib.import_module("gateway.nowhere")
    assert gc.isenabled()
