"""What came out of the mutants: figures of each block, survivors with their reasons, the table."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import amaranth

import trainwright_hw
from trainwright_sim.mutation.blocks import BLOCKS
from trainwright_sim.mutation.execute import Verdict

REASONS = Path(__file__).with_name("survivors.toml")
HARDWARE = Path(str(trainwright_hw.__file__)).parent
_AMARANTH = Path(str(amaranth.__file__)).parents[1]


@dataclass(frozen=True)
class Score:
    """The mutants of a block, or of all."""

    block: str
    mutants: int
    equivalent: int
    killed: int
    survived: int
    seconds: float

    @classmethod
    def of(cls, block: str, verdicts: Sequence[Verdict], seconds: float) -> "Score":
        """Counts verdicts."""
        equivalent, killed = (
            sum(v.status == status for v in verdicts) for status in ("equivalent", "killed")
        )
        survived = len(verdicts) - equivalent - killed
        return cls(block, len(verdicts), equivalent, killed, survived, seconds)

    @classmethod
    def total(cls, scores: Iterable["Score"]) -> "Score":
        """Of all blocks."""
        total = cls("all", 0, 0, 0, 0, 0.0)
        for one in scores:
            total = cls(
                "all",
                total.mutants + one.mutants,
                total.equivalent + one.equivalent,
                total.killed + one.killed,
                total.survived + one.survived,
                total.seconds + one.seconds,
            )
        return total

    @property
    def score(self) -> float:
        """Killed, of those that are not proven to be the same machine; 1 where there are none."""
        faults = self.mutants - self.equivalent
        return self.killed / faults if faults else 1.0

    def row(self) -> dict[str, object]:
        """For JSON."""
        return {
            "block": self.block,
            "mutants": self.mutants,
            "equivalent": self.equivalent,
            "killed": self.killed,
            "survived": self.survived,
            "score": round(self.score, 4),
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why mutants of a line survive: ``line`` is a part of it, ``fault`` one of what is told of the
    mutant (default: any), ``block`` the beginning of the block's name (default: any).
    """

    source: str
    line: str
    why: str
    fault: str = ""
    block: str = ""

    def explains(self, block: str, verdict: Verdict) -> bool:
        """Whether it is of that mutant."""
        return (
            block.startswith(self.block)
            and self.fault in verdict.mutant.fault
            and any(
                source.startswith(f"{self.source}:") and self.line in text_of(source)
                for source in verdict.mutant.source.split()
            )
        )


def reasons(path: Path = REASONS) -> list[Reason]:
    """Those of the file. Raises ``OSError`` or ``ValueError`` for a file that is none."""
    try:
        return [Reason(**row) for row in tomllib.loads(path.read_text()).get("survivor", [])]
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None


def file_of(path: str) -> Path:
    """A source of the hardware's, or of Amaranth's."""
    return (_AMARANTH if path.startswith("amaranth/") else HARDWARE) / path


def text_of(source: str) -> str:
    """The line of the hardware's source, or of Amaranth's, that ``file:line`` names; empty where
    there is none.
    """
    path, _, number = source.partition(":")
    try:
        lines = file_of(path).read_text().splitlines()
    except OSError:
        return ""
    return lines[int(number) - 1] if 0 < int(number) <= len(lines) else ""


def reason(known: Iterable[Reason], block: str, verdict: Verdict) -> str | None:
    """Why a mutant survived, if the file says so."""
    return next((r.why for r in known if r.explains(block, verdict)), None)


_ROW = re.compile(r"^\| ([\w-]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", re.MULTILINE)


def with_rows(page: Path, scores: Sequence[Score]) -> list[Score]:
    """Scores in the order of the blocks, and of other blocks what the page's table says."""
    found = {
        name: Score(name, *map(int, counts), seconds=0.0)
        for name, *counts in _ROW.findall(page.read_text())
    }
    found |= {one.block: one for one in scores}
    return [found[name] for name in BLOCKS if name in found]


def markdown(scores: Sequence[Score]) -> str:
    """The table of the page."""
    lines = ["| block | mutants | equivalent | killed | survived | score |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for s in (*scores, Score.total(scores)):
        lines.append(
            f"| {s.block} | {s.mutants} | {s.equivalent} | {s.killed} | {s.survived} "
            f"| {100 * s.score:.1f} % |"
        )
    return "\n".join(lines)
