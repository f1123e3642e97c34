"""Settings in YAML, in which none is given twice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode

from foretell.errors import RefusedError


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As YAML demands, and PyYAML does not: a key is there once."""
        keys = [self.construct_object(key) for key, _ in node.value]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                mark = node.value[place][0].start_mark
                raise ConstructorError(None, None, f"{key} is given twice", mark)
        return super().construct_mapping(node, deep)


def load(text: str | bytes, place: object) -> Any:  # noqa: ANN401 - whatever it holds
    """What a text in YAML holds.

    Raises:
        RefusedError: it is not YAML, or has a key twice; the message names the place and the line.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - it is a safe one
    except yaml.YAMLError as error:
        raise RefusedError(f"{place}: not YAML: {error}") from None
