"""Arguments as they are given: by name, and in the names of folders."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.importers.arguments import Argument, Arguments
from foretell.importers.errors import ImporterError
from foretell.importers.registry import ALIASES, CODE_BASES, OPTIONS


def read_arguments(given: Mapping[str, object], provenance: str | None = None) -> Arguments:
    """Read the options that matter here out of named values; all others are left out.

    Args:
        given: Values by the published names, as text, numbers or truth values.
        provenance: Where they come from; None for flags, each of which names itself.

    Raises:
        ImporterError: a value does not fit its option; the message names it and its provenance.
    """
    arguments: Arguments = {}
    for name, value in given.items():
        name = ALIASES.get(name, name)
        if name not in OPTIONS:
            continue
        origin = provenance or f"--{name}"
        try:
            arguments[name] = Argument(OPTIONS[name].read(str(value)), origin)
        except ValueError as error:
            reason = str(error) if "expected" in str(error) else "expected a number"
            raise ImporterError(f"{name} {value!r} ({origin}): {reason}") from None
    return arguments


def read_setting(name: str, provenance: str) -> Arguments | None:
    """Read the arguments that the name of a checkpoint's folder spells out.

    Args:
        name: Such as `…_ftM_sl336_ll48_pl96_dm16_nh4_el3_dl1_df128_fc1_ebtimeF_…`.
        provenance: What to call the folder.

    Returns:
        None if no code base names its folders so.
    """
    for code in CODE_BASES.values():
        found = code.setting.fullmatch(name) if code.setting is not None else None
        if found is not None:
            given = {key: value for key, value in found.groupdict().items() if value is not None}
            return read_arguments(given, provenance)
    return None
