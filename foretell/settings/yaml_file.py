"""Settings in YAML without duplicate keys."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode

from foretell.errors import RefusedError


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse duplicate keys, as YAML requires and PyYAML does not."""
        keys = [self.construct_object(key) for key, _ in node.value]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                mark = node.value[place][0].start_mark
                raise ConstructorError(None, None, f"{key} is given twice", mark)
        return super().construct_mapping(node, deep)


def load(text: str | bytes, place: object) -> Any:  # noqa: ANN401 - whatever it holds
    """Parse a text in YAML.

    Raises:
        RefusedError: the text is not YAML, or has a duplicate key; the message names the line.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise RefusedError(f"{place}: not YAML: {error}") from None
