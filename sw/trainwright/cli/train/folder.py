"""The output folder of a run: what lies in it, and when it may be written to."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from trainwright.cli.errors import OptionError
from trainwright.support.errors import file_errors
from trainwright.support.files import write_whole
from trainwright.support.locks import LOCK, Locked, claimed

CHECKPOINT = "checkpoint.safetensors"
RESULT = "result.json"
PICTURES = "pictures"
_DRAWN = "accuracy confusion cycles loss predictions r2 ranks samples scales".split()
"""Names of all pictures of ``report.pictures.draw_all``, whose import takes half a second."""
ROUNDING = ("rounded.safetensors", "rounding.json", "pictures/rounding.png")
_OURS = (
    *(RESULT, *ROUNDING, CHECKPOINT, "model.safetensors"),
    *("history.jsonl", "curves.csv", "report.html"),
    *(f"{PICTURES}/{name}.png" for name in _DRAWN),
)


class RunFolder:
    """The folder of one run. ``result.json`` is written last: with it the run is finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / CHECKPOINT
        self._held = ExitStack()

    @property
    def finished(self) -> bool:
        """Whether a whole run with its report lies here."""
        return (self.path / RESULT).is_file()

    def check_new(self, *, force: bool) -> None:
        """Raise ``OptionError`` where a new run would lose an old one, unless ``force``."""
        if self.path.exists() and not self.path.is_dir():
            raise OptionError(f"--out {self.path} is not a folder")
        if force or not self.path.is_dir():
            return
        if self.finished:
            raise OptionError(
                f"{self.path} holds a finished run; --force replaces it, --out names another folder"
            )
        if self.checkpoint.is_file():
            raise OptionError(
                f"{self.path} holds an unfinished run; --resume goes on with it, "
                "--force replaces it"
            )
        names = {path.name for path in self.path.iterdir()} - {LOCK}
        if names and names <= {*_OURS, PICTURES, "tensorboard"}:
            raise OptionError(
                f"{self.path} holds a run without a checkpoint, which has just begun or ended "
                "early: --force replaces it, --out names another folder"
            )
        if names:
            raise OptionError(
                f"{self.path} is not empty and holds no run of trainwright; name another --out, "
                "or add --force to write among its files"
            )

    def claim(self) -> None:
        """Keep other processes from writing here until ``release``, or until this one ends.

        Makes the folder. Raises ``OptionError`` where another run is at work in it.
        """
        try:
            with file_errors(f"cannot write to --out {self.path}"):
                self.path.mkdir(parents=True, exist_ok=True)
                self._held.enter_context(claimed(self.path))
        except Locked:
            raise OptionError(
                f"another run is writing to {self.path}: wait for its end, or name another --out"
            ) from None

    def release(self) -> None:
        """Let others write here."""
        with suppress(OSError):
            self._held.close()

    def begin(self, *, force: bool) -> None:
        """Make the folder and claim it; a run that was in it loses its files, other files stay.

        Raises ``OptionError`` where the folder cannot be written to, and those of ``check_new``:
        another run may have been here since that was asked.
        """
        self.claim()
        self.check_new(force=force)
        with file_errors(f"cannot write to --out {self.path}"):
            for name in _OURS:
                (self.path / name).unlink(missing_ok=True)
            for path in self.path.glob("tensorboard/events.out.tfevents.*"):
                path.unlink()

    def finish(self) -> None:
        """Remove what only an unfinished run needs."""
        with suppress(OSError):
            self.checkpoint.unlink()

    def check_resumable(self) -> None:
        """Raise ``OptionError`` where there is no run to resume."""
        if self.finished:
            raise OptionError(f"the run in {self.path} is finished; its report is report.html")
        if not self.checkpoint.is_file():
            raise OptionError(f"--resume: there is no {CHECKPOINT} in {self.path}")

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield the path of a file in the folder, for a writer that raises ``OSError``.

        Makes the folder that ``name`` may have in it. Raises ``OptionError`` in its stead.
        """
        path = self.path / name
        with file_errors(f"cannot write {path}"):
            path.parent.mkdir(exist_ok=True)
            yield path

    def read(self, name: str) -> bytes | None:
        """Read a file in the folder; None where there is none."""
        try:
            return (self.path / name).read_bytes()
        except OSError:
            return None

    def write(self, name: str, content: bytes | str) -> None:
        """Write a file whole. Raises ``OptionError``."""
        with self.writing(name) as path:
            write_whole(path, content)
