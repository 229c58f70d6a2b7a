"""Command-line options that hold one value."""

import argparse
from typing import Any


class StoreOnce(argparse.Action):
    """Action that refuses a second, different value, where argparse would take the last one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value. Raises ``argparse.ArgumentError`` where another one is stored."""
        stored = getattr(namespace, self.dest)
        if stored not in (self.default, values):
            raise argparse.ArgumentError(
                self, f"is given twice, as {stored!r} and as {values!r}: give it once"
            )
        setattr(namespace, self.dest, values)
