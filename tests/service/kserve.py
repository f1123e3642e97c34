"""KServe's own wire types, from one module of its wheel: the package itself is never imported."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from importlib import metadata
from types import ModuleType

_MODULE = "kserve/protocol/rest/timeseries/types.py"


@cache
def kserve_types() -> ModuleType | None:
    """The module, or None if kserve is not installed (`pip install --no-deps kserve`)."""
    try:
        distribution = metadata.distribution("kserve")
    except metadata.PackageNotFoundError:
        return None
    file = next(path for path in distribution.files or () if str(path) == _MODULE)
    spec = importlib.util.spec_from_file_location("kserve_types", distribution.locate_file(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its annotations are texts, which pydantic looks up in the registered module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
