from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import bulk
from foretell.service.engine.process import load
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings
from tests.support.bundles import Spec, write_bundle


def test_both_forms_hold_the_same_series(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bulk, "SERIES", 2)
    context = bulk._SIZE.config.context
    write_bundle(tmp_path, Spec(name=bulk.NAME, channels=bulk._CHANNELS, context=context))
    settings = Settings(models=tmp_path, device="cpu", threads=1)
    repository = load(settings, Metrics())
    try:
        model = repository.registry.find(bulk.NAME)
        jobs = [form.read(model, settings) for form in bulk.forms().values()]
    finally:
        repository.close(5)
    assert [job.history.shape for job in jobs] == [(2, context, len(bulk._CHANNELS))] * 2
    np.testing.assert_array_equal(*(job.history for job in jobs))
