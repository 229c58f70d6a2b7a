"""Command-line options that hold one value."""

import argparse
from typing import Any


def _once(action: argparse.Action, namespace: argparse.Namespace, value: object) -> None:
    """Note the value of an option. Raises ``argparse.ArgumentError`` for a second, other one."""
    # Kept with the values of a line, because a parser may read several lines.
    stored = vars(namespace).setdefault("given_values", {}).setdefault(action.dest, value)
    if stored != value:
        raise argparse.ArgumentError(
            action, f"is given twice, as {stored!r} and as {value!r}: give it once"
        )


class StoreOnce(argparse.Action):
    """Action that refuses a second, different value, where argparse would take the last one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value."""
        _once(self, namespace, values)
        setattr(namespace, self.dest, values)


class SwitchOnce(argparse.BooleanOptionalAction):
    """Switch that refuses to be turned on and off by one command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store True, or False for ``--no-...``."""
        _once(self, namespace, option_string)
        super().__call__(parser, namespace, values, option_string)
