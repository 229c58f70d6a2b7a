"""Command-line options that hold one value."""

import argparse
from typing import Any


def _once(action: argparse.Action, value: object) -> None:
    """Note the value of an option. Raises ``argparse.ArgumentError`` for a second, other one."""
    stored = vars(action).setdefault("given", value)
    if stored != value:
        raise argparse.ArgumentError(
            action, f"is given twice, as {stored!r} and as {value!r}: give it once"
        )


def forget(action: argparse.Action) -> None:
    """Forget the value of an option: another command line begins."""
    vars(action).pop("given", None)


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
        _once(self, values)
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
        _once(self, option_string)
        super().__call__(parser, namespace, values, option_string)
