"""What every plug-in must keep, whatever it is, and what is raised when one does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sim.config.plugins import parameter_model

Part = TypeVar("Part")


class ContractError(AssertionError):
    """A plug-in breaks a rule of its contract: one sentence that begins with its kind."""


def require(condition: bool, part: object, rule: str) -> None:
    """Raise ContractError with the rule, and whose it is, unless the condition holds."""
    if not condition:
        raise ContractError(f"{name_of(part)}: {rule}")


def name_of(part: object) -> str:
    """What a plug-in is called in a sentence: its kind, or its class."""
    kind = getattr(part, "kind", None)
    return kind if isinstance(kind, str) else type(part).__name__


def made(factory: Callable[[], Part], base: type) -> Part:
    """What a factory makes. Raises ContractError if that is no plug-in of this base."""
    try:
        part = factory()
    except TypeError as error:
        called = getattr(factory, "__name__", "factory")
        raise ContractError(
            f"{called}() makes no {base.__name__}: {error}; accepted: a class without required "
            f"parameters, or lambda: {called}(…)"
        ) from None
    require(isinstance(part, base), part, f"is no {base.__name__}; accepted: a subclass of it")
    kind: Any = getattr(part, "kind", None)
    require(isinstance(kind, str) and kind != "", part, "has no kind; accepted: a class attribute")
    for name in ("needs", "uses"):
        value: Any = getattr(part, name, frozenset())
        require(isinstance(value, frozenset), part, f"{name} is no frozenset, but {value!r}")
    cls: type = type(part)
    try:
        parameter_model(cls)
    except ValueError as error:
        raise ContractError(f"{kind}: {error}") from None
    require(factory() is not part, part, "the factory gives the same object twice")
    return part
