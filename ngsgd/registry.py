"""One mechanism for "a kind of thing": components, objectives, launchers, table kinds."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from ngsgd.errors import DataError

T = TypeVar("T")


class Registry:
    """Names to objects of one kind. An unknown name is a DataError that lists the known ones.

    >>> updates = Registry("update rule")
    >>> @updates.register("plain")
    ... def plain(): ...
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, object] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """Decorator: enter the object under each of `names`."""

        def enter(thing: T) -> T:
            for name in names:
                assert name not in self._entries, f"{self.kind} {name} registered twice"
                self._entries[name] = thing
            return thing

        return enter

    def __getitem__(self, name: str):
        try:
            return self._entries[name]
        except KeyError:
            known = ", ".join(sorted(self._entries))
            raise DataError(f"unknown {self.kind} '{name}'; known: {known}") from None

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)
