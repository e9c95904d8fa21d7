"""Options of the commands, those of a fit from the table of its parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from squeak_dist.errors import InvalidParameterError
from squeak_dist.parameter_table import PARAMETERS, Parameter

_Command = TypeVar("_Command", bound=Callable[..., Any])

SPELLINGS = {"random_state": "--seed"}  # options that are not called as the parameter is
_METAVARS = {int: "COUNT", float: "NUMBER", None: "NAME"}
PATH = click.Path()  # or a URL; shells complete it


class Option(click.Option):
    """An option that stands under a heading in the help.

    Parameters
    ----------
    *args
        Those of ``click.Option``.
    group : str, default "Options"
        The heading.
    **kwargs
        Those of ``click.Option``.
    """

    def __init__(self, *args: Any, group: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class Command(click.Command):
    """A command whose help has its options in groups.

    Parameters are those of :class:`click.Command`.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each under its heading, headings in the order of declaration."""
        groups: dict[str, list[tuple[str, str]]] = {}
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        for parameter in options:
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "group", "Options"), []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class ParameterType(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """Values of a parameter of a fit: as text, or as a job file has them.

    Parameters
    ----------
    parameter : Parameter
        What is allowed.
    """

    def __init__(self, parameter: Parameter) -> None:
        self.name = parameter.name
        self.parameter = parameter

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text; others are taken as they are; both are checked."""
        value = self._read(value) if isinstance(value, str) else value
        try:
            self.parameter.check(value)
        except InvalidParameterError:
            self.fail(f"got {value!r}, expected {self.parameter.domain}", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the words that begin as the text does."""
        return [CompletionItem(w) for w in self.parameter.words if w.startswith(incomplete)]

    def _read(self, text: str) -> Any:
        if text in self.parameter.words:
            return self.parameter.choices[self.parameter.words.index(text)]
        if self.parameter.number is None:
            return text
        parts = text.split(",") if self.parameter.several else [text]
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            return text  # the check says what is allowed
        if self.parameter.number is int:
            numbers = [int(number) if number.is_integer() else number for number in numbers]
        return numbers if len(numbers) > 1 else numbers[0]


class Columns(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """Names of columns: comma separated, or a list in a job file."""

    name = "columns"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Return the names."""
        names = value.split(",") if isinstance(value, str) else value
        return [name.strip() for name in names]


class StorageOptions(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """Options of fsspec: ``key=value``, a JSON object, or a table in a job file."""

    name = "storage options"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, Any]:
        """Return the options of one occurrence."""
        if not isinstance(value, str):
            return dict(value)
        if not value.lstrip().startswith("{"):
            key, equals, rest = value.partition("=")
            if not (key.strip() and equals):
                self.fail(f"{value!r} is neither key=value nor a JSON object", param, ctx)
            return {key.strip(): _json_or_text(rest)}
        try:
            return dict(json.loads(value))
        except ValueError as error:
            self.fail(f"{value!r} is no JSON object: {error}", param, ctx)


def _json_or_text(text: str) -> Any:
    """Return true, 5 or {"a": 1} as what they are in JSON, and all else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def option(*names: str, group: str = "Options", **settings: Any) -> Callable[[_Command], _Command]:
    """Return a decorator that adds an :class:`Option` under a heading."""
    return click.option(*names, cls=Option, group=group, **settings)


def option_name(parameter: str) -> str:
    """Return the option of the command line that sets a parameter of a fit."""
    return SPELLINGS.get(parameter, "--" + parameter.replace("_", "-"))


def fit_options(command: _Command) -> _Command:
    """Give a command an option per parameter of a fit."""
    return reduce(lambda done, p: _fit_option(p)(done), reversed([*PARAMETERS.values()]), command)


def _fit_option(parameter: Parameter) -> Callable[[_Command], _Command]:
    words = " | ".join(word for word in parameter.words if word != "auto" or not parameter.number)
    allowed = f" {'Or ' if parameter.number else ''}{words}." if words else ""
    return option(
        option_name(parameter.name),
        parameter.name,
        group="Model",
        type=ParameterType(parameter),
        default=parameter.default,
        show_default=True,
        metavar=_METAVARS[parameter.number],
        help=parameter.help + allowed,
    )
