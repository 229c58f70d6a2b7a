"""Several observers in the place of one."""

from trainwright.network import Network
from trainwright.train.history import EvaluationRecord, StepRecord
from trainwright.train.interfaces import Observer, Verification


class Observers(Observer):
    """Tells each of several observers, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def started(self, step: int, total: int, network: Network) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.started(step, total, network)

    def stepped(self, record: StepRecord) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.stepped(record)

    def cut(self, step: int, network: Network) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.cut(step, network)

    def verified(self, total: Verification) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.verified(total)

    def evaluated(self, record: EvaluationRecord) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.evaluated(record)

    def evaluating(self, done: int, samples: int) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.evaluating(done, samples)
