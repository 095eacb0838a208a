"""The command line: a command's file is imported when it is called."""

from __future__ import annotations

import csv
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from sweeps.cli.refusals import of_click, told
from sweeps.errors import ContractError, InputError, RunError, nearest, refuse

__all__ = ["main"]

with Path(__file__).with_name("commands.csv").open(encoding="utf-8", newline="") as _rows:
    TABLE: Mapping[str, Mapping[str, str]] = {row["name"]: row for row in csv.DictReader(_rows)}
# What each command is for, and commands by their jobs, as help lists them.
COMMANDS = {name: row["words"] for name, row in TABLE.items()}
JOBS = ("Decide", "Network and overlap", "Measured", "Sweeps and figures", "What there is")

# Commands that were, and what to do instead.
GONE = {
    "fit-constants": "in a checkout of the source: python -m tests.maintenance.fit_constants",
}


class _Commands(click.Group):
    """Commands that are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name, file = (n.replace("-", "_") for n in (cmd_name, TABLE[cmd_name]["file"]))
        module = importlib.import_module(f"sweeps.cli.{file}_command")
        command: click.Command = getattr(module, f"{name}_command" if name != file else "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in GONE:
            refuse("command", args[0], "no such command any more", GONE[args[0]])
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = nearest(args[0], COMMANDS, shown=0)
            listed = near if near.startswith("did") else "sweeps --help lists them"
            refuse("command", args[0], "no such command", listed)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for job in JOBS:
            with formatter.section(job):
                names = [name for name, row in TABLE.items() if row["job"] == job]
                formatter.write_dl([(name, COMMANDS[name]) for name in names])


def _tell_version(ctx: click.Context) -> None:
    from sweeps.version import UNKNOWN, version

    number = version()
    shown = "of a checkout that isn't installed" if number == UNKNOWN else number
    click.echo(f"sweeps, version {shown}")
    ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every argument takes one value or many: 8,16,32 or 2:1024:x2 or 1KiB:8GiB:log97.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, wanted: _tell_version(ctx) if wanted else None,
    help="Show the version and exit.",
)
def commands() -> None:
    """Know what distributed training costs in communication, memory, time and energy."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    code = run(args)
    # Else Python looks for circles among all that was made, which takes a sixth of a plan's time.
    gc.freeze()
    sys.exit(code)


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line."""
    # A program that keeps 10^5 small objects: the usual thresholds would scan them again and again.
    gc.set_threshold(500_000, 20, 20)
    given = list(sys.argv[1:] if args is None else args)
    warnings.showwarning = lambda message, *_: click.echo(f"sweeps: {message}", err=True)
    try:
        result: Any = commands.main(given or ["--help"], "sweeps", standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        return _report(error.faults, 2)
    except ContractError as error:
        return _report(error.faults, 3)
    except RunError as error:
        return _report([str(error)], 1)
    except click.MissingParameter as error:
        return _report([lacking(error)], 2)
    except click.UsageError as error:
        return _report([of_click(error)], 2)
    except (KeyboardInterrupt, click.Abort):
        return _report(["interrupted; nothing was left half done"], 130)
    except (BrokenPipeError, SystemExit):
        # Click exits where a pipe has closed, and nothing else here does.  The reader has had
        # enough; without this, Python complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TypeError as error:
        from overhead.recording import RecordingError

        if not isinstance(error, RecordingError):
            raise
        return _report([str(error)], 2)
    except MemoryError:
        return _report(["out of memory; ask for fewer cells, or for a reduction"], 1)
    return result if isinstance(result, int) else 0


def lacking(error: click.MissingParameter) -> str:
    """Return what a command lacks, with an example."""
    command = error.ctx.info_name if error.ctx else None
    example = TABLE[command]["example"] if command and command in TABLE else ""
    if not example or error.param is None or error.ctx is None:
        return error.format_message()
    option = isinstance(error.param, click.Option)
    what = error.param.opts[0] if option else error.param.make_metavar(error.ctx).rstrip(".")
    example = f"such as 'sweeps {command} {example}'"
    if budget := error.ctx.params.get("budget"):
        small = f" ({budget} means {budget} USD; {budget}M for millions)" * budget.isdigit()
        return f"--budget {budget}: needs {what}, too: a budget sets no deadline{small}; {example}"
    return f"sweeps {command} needs {what}; give it, {example}"


def _report(lines: Sequence[str], code: int) -> int:
    for line in told(lines):
        click.echo(f"sweeps: {line}", err=True)
    return code
