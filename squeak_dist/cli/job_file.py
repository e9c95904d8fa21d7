"""Job files: the options of the commands as TOML, one table per command.

The values become the defaults of the options, so what is given on the command line wins.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from squeak_dist.cli.options import Columns, ParameterType, StorageOptions
from squeak_dist.errors import InvalidParameterError
from squeak_dist.parameter_table import ALIASES


def take_job_file(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    """Make the table of a job file that is called as the command the defaults of its options.

    A callback of an eager option of click.

    Raises
    ------
    click.BadParameter
        If the file is no TOML, or has a table, a key or a value that there is not.
    """
    if path is None:
        return
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"cannot read {path} as TOML: {error}") from error
    command = str(context.command.name)
    siblings = _commands(context)
    for name, table in tables.items():
        if name not in siblings:
            raise click.BadParameter(
                f"{path}: there is no command {name!r} to set options of{_near(name, siblings)}; "
                f"write them under [{command}]"
            )
        if not isinstance(table, dict):
            raise click.BadParameter(f"{path}: {name} must be a table, [{name}]")
    values = _checked(context.command, tables.get(command, {}), f"{path}: [{command}]")
    context.default_map = {**(context.default_map or {}), **values}


def _commands(context: click.Context) -> list[str]:
    group = context.parent.command if context.parent is not None else None
    known = list(group.commands) if isinstance(group, click.Group) else []
    return known or [str(context.command.name)]


def _checked(command: click.Command, table: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the values by the names of the command's parameters."""
    known = {_key(p): p for p in command.params if p.name != "config"}
    values = {}
    for given, value in table.items():
        key = given.replace("-", "_")
        if key not in known:
            raise click.BadParameter(f"{where} has no key {given!r}{_near(key, known)}")
        values[str(known[key].name)] = _typed(known[key], value, f"{where} {given}")
    return values


def _key(parameter: click.Parameter) -> str:
    """Return what a job file calls a parameter: its option without dashes, or its argument."""
    names = [name for name in parameter.opts if name.startswith("--")]
    return names[0][2:].replace("-", "_") if names else str(parameter.name)


def _near(name: str, known: Iterable[str]) -> str:
    known = list(known)
    alias = "seed" if name == "random_state" else ALIASES.get(name)
    close = [alias] if alias in known else difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"


def _typed(parameter: click.Parameter, value: Any, where: str) -> Any:
    """Return a value of TOML as click takes it, after its type was checked."""
    kind = parameter.type
    if isinstance(kind, ParameterType):
        try:
            kind.parameter.check(value)
        except InvalidParameterError as error:
            raise click.BadParameter(f"{where}: {error}") from error
        return value
    many = parameter.multiple if isinstance(parameter, click.Option) else parameter.nargs == -1
    if isinstance(kind, StorageOptions):
        _demand(isinstance(value, dict), where, "a table", value)
        return [value]
    if many or isinstance(kind, Columns):
        values = value if isinstance(value, list) else [value]
        _demand(all(isinstance(v, str) for v in values), where, "text, or a list of texts", value)
        return tuple(values)
    if isinstance(parameter, click.Option) and parameter.is_flag:
        _demand(isinstance(value, bool), where, "true or false", value)
    elif isinstance(kind, click.IntRange):
        _demand(type(value) is int, where, "an integer", value)
    else:
        _demand(isinstance(value, str), where, "text", value)
    return value


def _demand(right: bool, where: str, expected: str, value: Any) -> None:
    if not right:
        raise click.BadParameter(f"{where} must be {expected}, got {value!r}")
