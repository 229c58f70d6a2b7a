"""Summarise mutation runs: figures of each block, survivors with their reasons, and the table."""

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
        """Count the verdicts of one block."""
        equivalent, killed = (
            sum(v.status == status for v in verdicts) for status in ("equivalent", "killed")
        )
        survived = len(verdicts) - equivalent - killed
        return cls(block, len(verdicts), equivalent, killed, survived, seconds)

    @classmethod
    def total(cls, scores: Iterable["Score"]) -> "Score":
        """Add up the scores of all blocks."""
        total = cls("all", 0, 0, 0, 0, 0.0)
        for score in scores:
            total = cls(
                "all",
                total.mutants + score.mutants,
                total.equivalent + score.equivalent,
                total.killed + score.killed,
                total.survived + score.survived,
                total.seconds + score.seconds,
            )
        return total

    @property
    def score(self) -> float:
        """Killed, of those that are not proven to be the same machine; 1 where there are none."""
        faults = self.mutants - self.equivalent
        return self.killed / faults if faults else 1.0

    def row(self) -> dict[str, object]:
        """Return the score as an object for JSON."""
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
class SurvivalReason:
    """Why the mutants of a source line survive.

    ``line`` is a part of that line, ``fault`` a part of the mutant's description (default: any),
    and ``block`` the beginning of the block's name (default: any).
    """

    source: str
    line: str
    why: str
    fault: str = ""
    block: str = ""

    def explains(self, block: str, verdict: Verdict) -> bool:
        """Return whether this reason applies to the mutant."""
        return (
            block.startswith(self.block)
            and self.fault in verdict.mutant.fault
            and any(
                source.startswith(f"{self.source}:") and self.line in text_of(source)
                for source in verdict.mutant.source.split()
            )
        )


def reasons(path: Path = REASONS) -> list[SurvivalReason]:
    """Read the reasons from a file. Raises ``OSError`` or ``ValueError`` if it has none."""
    try:
        return [
            SurvivalReason(**row) for row in tomllib.loads(path.read_text()).get("survivor", [])
        ]
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None


def file_of(path: str) -> Path:
    """Return the path of a source file of the hardware or of Amaranth."""
    return (_AMARANTH if path.startswith("amaranth/") else HARDWARE) / path


def text_of(source: str) -> str:
    """Return the source line that ``file:line`` names; empty where there is no such line."""
    path, _, number = source.partition(":")
    try:
        lines = file_of(path).read_text().splitlines()
    except OSError:
        return ""
    return lines[int(number) - 1] if 0 < int(number) <= len(lines) else ""


def reason(known: Iterable[SurvivalReason], block: str, verdict: Verdict) -> str | None:
    """Return why a mutant survived, if one of the known reasons applies to it."""
    return next((r.why for r in known if r.explains(block, verdict)), None)


_ROW = re.compile(r"^\| ([\w-]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", re.MULTILINE)


def with_rows(page: Path, scores: Sequence[Score]) -> list[Score]:
    """Return scores in the order of the blocks.

    Blocks without a new score keep the row that the page's table already has.
    """
    rows = {
        name: Score(name, *map(int, counts), seconds=0.0)
        for name, *counts in _ROW.findall(page.read_text())
    }
    rows |= {score.block: score for score in scores}
    return [rows[name] for name in BLOCKS if name in rows]


def markdown(scores: Sequence[Score]) -> str:
    """Return the page's table of scores."""
    lines = ["| block | mutants | equivalent | killed | survived | score |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for s in (*scores, Score.total(scores)):
        lines.append(
            f"| {s.block} | {s.mutants} | {s.equivalent} | {s.killed} | {s.survived} "
            f"| {100 * s.score:.1f} % |"
        )
    return "\n".join(lines)
