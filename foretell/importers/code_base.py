"""What the file of a code base says of it; everything else is the same for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretell.importers.arguments import Arguments, Option, Value
from foretell.importers.layouts import Layout

if TYPE_CHECKING:
    from torch import Tensor

# Values of arguments by name.
Values = Mapping[str, Any]
State = Mapping[str, "Tensor"]


@dataclass(frozen=True, eq=False)
class Architecture:
    """An architecture as code bases have it.

    Attributes:
        name: What it is called here.
        layouts: The forms its keys may have.
        fields: The arguments it depends on, in the order to show them, and the field of our
            configuration that takes each as it stands; None where `configure` reads it.
        only_with: Arguments that matter only where another one is set.
        infer: More arguments from the checkpoint than shapes tell; gets the sizes as well.
        derive: Adds the arguments that follow from others and from the sizes.
        configure: Fields that no argument gives as it stands.
        prepare: The weights, changed where the published code computes with them otherwise.
    """

    name: str
    layouts: tuple[Layout, ...]
    fields: Mapping[str, str | None]
    only_with: Mapping[str, str] = field(default_factory=dict)
    infer: Callable[[State, Mapping[str, int]], Values] = lambda *_: {}
    derive: Callable[[Arguments, Mapping[str, int], CodeBase], None] = lambda *_: None
    configure: Callable[[Values], dict[str, Any]] = lambda _: {}
    prepare: Callable[[State, Values], State] = lambda state, _: state

    def reads(self, name: str, values: Values) -> bool:
        """Whether the argument matters among these."""
        switch = self.only_with.get(name)
        return name in self.fields and (switch is None or bool(values.get(switch, True)))


@dataclass(frozen=True, eq=False)
class CodeBase:
    """A code base.

    Attributes:
        name: Its value of `--from`.
        title: What to call it.
        architectures: Those that are read.
        options: Those of its own options that matter here.
        defaults: Values of options that a command line leaves out.
        aliases: Its names of options that have another name here.
        constants: Arguments that its code does not read but fixes.
        fix: Likewise, where they depend on others.
        usual: Values that its code fixes, and that a file may show to have been changed.
        setting: The names it gives the folders of its checkpoints, with arguments in them.
        target_last: Whether it moves the target to the last channel of custom data.
    """

    name: str
    title: str
    architectures: tuple[Architecture, ...]
    options: Mapping[str, Option]
    defaults: Mapping[str, Value]
    aliases: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Value] = field(default_factory=dict)
    fix: Callable[[Values], Mapping[str, Value]] = lambda _: {}
    usual: Mapping[str, Value] = field(default_factory=dict)
    setting: re.Pattern[str] | None = None
    target_last: bool = True
