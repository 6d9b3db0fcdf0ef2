"""Plug-ins from configuration: constructor parameters are the keys, annotations their types.

A plug-in is written {kind: name, parameter: value, …}; sim.config.classes says which class a name
means. The resolved form is plain data too: the kind and every parameter, defaults filled in.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import ErrorDetails

from sim.config.classes import Table, all_kinds, find_class, or_module
from sim.config.yaml_nodes import KeyPath
from workloads.checks import written_out

Report = Callable[[KeyPath, str], None]
Config = dict[str, Any]


class Strict(BaseModel):
    """No unknown keys, no "5" for 5, no true for 1, no infinity; 5 for 5.0 is fine."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )


# what an annotation asks for, by pydantic's name of the error
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "text",
    "path": "text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen": "a list",
    "iterable": "a list",
    "sequence": "a list",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
    "typed": "a mapping",
    "dataclass": "a mapping",
    "none": "null",
}
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}
UNKNOWN_KEY = "unknown key"  # how the sentence about one begins
_KEYED = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*): (.+)", re.DOTALL)


class Reported:
    """Whether any of the reports that it stands before has been told of anything."""

    def __init__(self) -> None:
        self.any = False

    def before(self, report: Report) -> Report:
        """A report that notes that there was one, and passes it on."""

        def note(path: KeyPath, sentence: str) -> None:
            self.any = True
            report(path, sentence)

        return note


def below(start: KeyPath, report: Report) -> Report:
    """A report whose paths begin with start."""
    return lambda path, sentence: report((*start, *path), sentence)


def guess(word: str, accepted: list[str]) -> str:
    """The end of a sentence about an unknown word: a guess if one is near, and what is accepted."""
    near = get_close_matches(word, accepted, n=1)
    hint = f", did you mean {near[0]}" if near else ""
    return f"{hint}; accepted: {', '.join(accepted) or 'none'}"


def split_key(message: str) -> tuple[KeyPath, str]:
    """A constructor's message "parameter: sentence" as the path of the parameter and the rest."""
    match = _KEYED.fullmatch(message)
    if match is None:
        return (), message
    keys = match[1].split(".")
    return tuple(int(key) if key.isdigit() else key for key in keys), match[2]


def validate(model: type[Strict], data: Config, path: KeyPath, report: Report) -> Strict | None:
    """Check data against a model; report everything wrong with it, at its path."""
    try:
        # as JSON, because that is what strictness is about: lists may be tuples, text a path
        return model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        for where, sentence in _sentences(error.errors(), data, model).items():
            report((*path, *where), sentence)
        return None


def _sentences(errors: list[ErrorDetails], data: Config, model: type[Strict]) -> dict[KeyPath, str]:
    """One sentence for each place; the members of a union are joined by "or"."""
    expected: dict[KeyPath, list[str]] = {}
    sentences: dict[KeyPath, str] = {}
    for error in errors:
        where = _inside(error["loc"], data)
        kind = error["type"]
        name = _EXPECTED.get(kind.split("_", maxsplit=1)[0])
        if kind == "missing":
            where = (*where, *error["loc"][len(where) :])
            sentences[where] = "is required"
        elif kind == "extra_forbidden":
            known = _keys_around(where, model)
            sentences[where] = UNKNOWN_KEY + (guess(str(where[-1]), known) if known else "")
        elif kind == "literal_error":
            words = re.findall(r"'([^']*)'", error["ctx"]["expected"])
            sentences[where] = f"unknown value {shown(error['input'])}" + guess(
                str(error["input"]), words
            )
        elif kind in _BOUNDS:
            word, key = _BOUNDS[kind]
            limit = error["ctx"][key]
            sentences[where] = f"must be {word} {limit}, got {shown(error['input'])}"
        elif kind == "value_error":
            sentences[where] = str(error["ctx"]["error"])
        elif kind == "too_short":
            needed, own = error["ctx"]["min_length"], error["ctx"]["actual_length"]
            sentences[where] = f"needs at least {needed}, has {own}"
        elif kind == "too_long":
            most, own = error["ctx"]["max_length"], error["ctx"]["actual_length"]
            sentences[where] = f"has {own}, accepted: {most}"
        elif name is not None:
            names = expected.setdefault(where, [])
            if name not in names:
                names.append(name)
            sentences[where] = f"must be {' or '.join(names)}, got {shown(error['input'])}"
        else:
            sentences[where] = error["msg"][0].lower() + error["msg"][1:]
    return sentences


def _keys(model: type[Strict]) -> dict[str, Any]:
    """The keys of a model and their annotations."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _keys_around(where: KeyPath, model: type[Strict]) -> list[str]:
    """The keys accepted where an unknown one stands; none if that is not a model."""
    for part in where[:-1]:
        if isinstance(part, int):
            continue  # an entry of a list, whose model is the list's
        annotation = _keys(model).get(str(part))
        members = [annotation, *get_args(annotation)]
        models = [m for m in members if isinstance(m, type) and issubclass(m, Strict)]
        if not models:
            return []
        model = models[0]
    return list(_keys(model))


def _inside(loc: tuple[int | str, ...], data: Any) -> KeyPath:
    """The part of an error's location that is a path in the data: not the names of types."""
    path: KeyPath = ()
    for part in loc:
        is_key = isinstance(data, dict) and part in data
        is_row = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if not is_key and not is_row:
            break
        data = data[part]
        path = (*path, part)
    return path


def shown(value: object) -> str:
    """A wrong value as a sentence quotes it."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


@lru_cache(maxsize=256)
def parameter_model(cls: type) -> type[Strict]:
    """The parameters of a class's constructor as a pydantic model, by alias.

    Raises ValueError if an annotation cannot be understood.
    """
    try:
        hints = _hints(cls)
        fields: dict[str, Any] = {}
        for number, parameter in enumerate(inspect.signature(cls).parameters.values()):
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                continue
            default = ... if parameter.default is parameter.empty else parameter.default
            # numbered, because pydantic reserves names that a parameter may have
            fields[f"field{number}"] = (
                hints.get(parameter.name, Any),
                Field(default, alias=parameter.name),
            )
        model: type[Strict] = create_model(cls.__name__, __base__=Strict, **fields)
    except (NameError, TypeError, PydanticUserError) as error:
        raise ValueError(f"the parameters of {cls.__name__} cannot be read: {error}") from None
    return model


def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(getattr(cls, "__init__"), include_extras=True)  # noqa: B009
    except NameError:
        # a dataclass that inherits fields from another module has them in its own __init__
        return get_type_hints(cls, include_extras=True)


def parameter_names(cls: type) -> list[str]:
    """The names of the constructor's parameters. Raises ValueError as parameter_model."""
    return list(_keys(parameter_model(cls)))


def resolve(
    data: Any, table: Table, base: type | None, path: KeyPath, report: Report
) -> Config | None:
    """Check a plug-in's configuration; return it with every default filled in, or report why not.

    What only the constructor can find is left to `build`.
    """
    data = written_out(data, table)
    if not isinstance(data, dict):
        short = " or a number" if any(hasattr(cls, "shorthand") for cls in table.values()) else ""
        example = f"{{kind: {next(iter(table))}}}"
        report(path, f"must be a mapping like {example}{short}, got {shown(data)}")
        return None
    kind = data.get("kind")
    if not isinstance(kind, str):
        missing = "is required" if kind is None else f"must be text, got {shown(kind)}"
        kinds = ", ".join(all_kinds(table, base)) + or_module(base)
        report((*path, "kind"), f"{missing}; accepted: {kinds}")
        return None
    try:
        cls = find_class(kind, table, base)
        model = parameter_model(cls)
    except ValueError as error:
        report((*path, "kind"), str(error))
        return None
    parameters = {key: value for key, value in data.items() if key != "kind"}
    is_whole = _resolve_nested(parameters, cls, path, report)
    valid = validate(model, parameters, path, report)
    if valid is None or not is_whole:
        return None
    return {"kind": kind, **valid.model_dump(mode="json", by_alias=True)}


def _resolve_nested(parameters: Config, cls: type, path: KeyPath, report: Report) -> bool:
    """Resolve the parameters that are plug-ins themselves, or lists of such; whether all can be.

    What is no list where one is due is left to the check of the annotations.
    """
    is_whole = True
    for name, entries in nested_tables(cls).items():
        if parameters.get(name) is not None:
            inner = resolve(parameters[name], entries, None, (*path, name), report)
            is_whole = is_whole and inner is not None
            parameters[name] = inner or {}
    for name, entries in nested_lists(cls).items():
        if isinstance(parameters.get(name), list):
            items = [
                resolve(item, entries, None, (*path, name, number), report)
                for number, item in enumerate(parameters[name])
            ]
            is_whole = is_whole and None not in items
            parameters[name] = [item or {} for item in items]
    return is_whole


def nested_tables(cls: type) -> Mapping[str, Table]:
    """The parameters of a plug-in that are plug-ins themselves, and the tables that name them."""
    return dict(getattr(cls, "nested", {}))


def nested_lists(cls: type) -> Mapping[str, Table]:
    """The parameters of a plug-in that are lists of plug-ins, and the tables that name them."""
    return dict(getattr(cls, "nested_lists", {}))


def build(config: Config, table: Table, base: type) -> Any:
    """The plug-in that a resolved configuration describes. Raises ValueError."""
    cls = find_class(config["kind"], table, base)
    parameters = {key: value for key, value in config.items() if key != "kind"}
    # once more through the model, for values that JSON cannot hold: tuples, paths
    valid = parameter_model(cls).model_validate_json(json.dumps(parameters))
    fields = type(valid).model_fields
    return cls(**{field.alias or name: getattr(valid, name) for name, field in fields.items()})
