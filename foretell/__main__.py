"""Entry point: finds the subcommand and imports only what it needs."""

from __future__ import annotations

import importlib
import keyword
import os
import sys

import click

# Commands by purpose.
_COMMANDS = {
    "Data and training": ("inspect", "presets", "settings", "train", "tune", "import", "export"),
    "Bundles": ("verify", "backtest", "report", "list", "sign", "publish", "gc"),
    "Forecasts": ("serve", "predict", "batch", "demo"),
    "What came true": ("actuals", "accuracy", "compare", "challenge", "promote"),
}


class _LazyGroup(click.Group):
    """A group whose subcommands are imported on use, so that `serve` never imports torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for names in _COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        # A module cannot be called `import`.
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command: click.Command = importlib.import_module(f"foretell.commands.{module}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in _COMMANDS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, one.get_short_help_str(90)) for name, one in commands if one]
                )


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="foretell")
def cli() -> None:
    """From a trained forecasting transformer to a verified ONNX service."""


def main() -> None:
    """Run the command line; the exit code is 2 for bad input."""
    _open_closed_streams()
    # torch reads this when it is loaded. Threads that spin while they wait starve each other.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        cli()
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] == "foretell":
            raise
        click.echo(f"foretell: {error.name} is not installed; {_hint(error.name)}", err=True)
        sys.exit(2)


def _open_closed_streams() -> None:
    """Open `/dev/null` for each standard stream that is closed.

    Otherwise a socket or a file would get its descriptor, and receive what is printed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # `open` takes the lowest free descriptor, which is the stream's.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - stays open


# The extra that installs a module; others are in the extra `train`.
_BASE = ("httpx", "pandas")
_SERVE = (
    *("backports", "fastapi", "flatbuffers", "httptools", "onnxruntime", "orjson"),
    *("prometheus_client", "pydantic_settings", "pythonjsonlogger", "starlette", "uvicorn"),
    "uvloop",
)
_EXTRAS = {
    "jinja2": "report",
    "markupsafe": "report",
    "matplotlib": "plot",
    "mlflow": "mlflow",
    "model_signing": "signing",
    "OpenSSL": "signing",
    "obstore": "storage",
    "optuna": "tune",
    "pvlib": "demo",
    "ray": "ray",
    "tensorboard": "tensorboard",
}


def _hint(module: str) -> str:
    name = module.split(".")[0]
    if name in _BASE:
        return "pip install foretell"
    if name in _SERVE:
        return "pip install 'foretell[cpu]', or 'foretell[gpu]'"
    return f"pip install 'foretell[{_EXTRAS.get(name, 'train')}]'"


if __name__ == "__main__":
    main()
