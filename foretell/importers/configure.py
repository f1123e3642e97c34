"""From the arguments of the published code to a configuration of ours."""

from __future__ import annotations

from pydantic import ValidationError

from foretell.importers.arguments import Arguments
from foretell.importers.code_base import Architecture, Values
from foretell.importers.errors import ImporterError
from foretell.importers.layouts import Layout
from foretell.importers.registry import OPTIONS
from foretell.models.forecaster import ARCHITECTURES, ForecasterConfig

# Nothing but training depends on the first, and the data has the second.
_NEVER_ASKED = {"dropout", "enc_in"}
_OPTIONAL = {"dropout", "calendar"}


def values_of(arguments: Arguments) -> Values:
    """The values without their provenance."""
    return {name: argument.value for name, argument in arguments.items()}


def relevant(architecture: Architecture, arguments: Arguments) -> Arguments:
    """The arguments that the model and its data depend on."""
    values = values_of(arguments)
    names = [name for name in architecture.fields if architecture.reads(name, values)]
    names += ["features"] if forecasts_last(values) else []
    return {name: arguments[name] for name in [*names, "split", "target"] if name in arguments}


def forecasts_last(values: Values) -> bool:
    """Whether it reads several channels, and what the published code takes is the last of them."""
    return values.get("features") == "MS" and values.get("enc_in") != 1


def required(architecture: Architecture, layout: Layout, arguments: Arguments) -> list[str]:
    """The arguments that no shape tells and that the model cannot be built without."""
    values = values_of(arguments)
    return [
        name
        for name in architecture.fields
        if name in OPTIONS.keys() - layout.sizes - _NEVER_ASKED and architecture.reads(name, values)
    ]


def configure(architecture: Architecture, arguments: Arguments) -> ForecasterConfig:
    """Build the configuration.

    Raises:
        ImporterError: keys that should tell a size are not in the file, or the arguments do not
            fit together.
    """
    values = values_of(arguments)
    fields = {name: field for name, field in architecture.fields.items() if field is not None}
    unknown = [name for name in fields if name not in values and name not in _OPTIONAL]
    if unknown:
        raise ImporterError(f"no key of the file tells {', '.join(unknown)}; keys are missing")
    given = {field: values[name] for name, field in fields.items() if name in values}
    if forecasts_last(values):
        given["targets"] = (values["enc_in"] - 1,)
    try:
        return ARCHITECTURES[architecture.name].model_validate(
            given | architecture.configure(values)
        )
    except ValidationError as error:
        raise ImporterError(refusal(error)) from None


def refusal(error: ValidationError) -> str:
    """What to say of arguments that make no configuration."""
    problems = "; ".join(
        f"{'.'.join(str(part) for part in each['loc'])} {each['msg']}".strip()
        for each in error.errors()
    )
    return f"its arguments do not fit together: {problems}"
