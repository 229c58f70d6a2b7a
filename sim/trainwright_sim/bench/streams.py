"""Both ends of a stream, and the rules of the handshake."""

from collections import deque
from collections.abc import Callable, Iterable

from trainwright_sim.bench.testbench import TestBench


class StreamSource:
    """Sends ``items`` (payloads as integers) in order, waiting in between as its stalls say."""

    def __init__(self, tb: TestBench, name: str, *, stall: str = "none", items: Iterable[int] = ()):
        self.items = deque(items)
        self.sent = 0
        self._valid, self._ready = tb.handle(f"{name}_valid"), tb.handle(f"{name}_ready")
        self._payload = tb.handle(f"{name}_payload")
        self._stalls = tb.stalls(stall)
        self.offered = False
        """Whether the first of the items is at the ports."""
        self._valid.value = 0
        self._payload.value = 0
        tb.agents.append(self)

    @property
    def idle(self) -> bool:
        """Whether everything was taken."""
        return not self.items

    def cycle(self) -> None:
        if self.offered and self._ready.value:
            self.items.popleft()
            self.sent += 1
            self.offered = False
            self._valid.value = 0
        if self.items and not self.offered and self._stalls.go():
            self.offered = True
            self._valid.value = 1
            self._payload.value = self.items[0]


class StreamSink:
    """Takes payloads as integers when its stalls say so, and holds the stream to its rules.

    An offer that was not taken stays, with the same payload. With ``stall="patient"`` ready
    follows valid: a design whose valid waits for ready hangs.
    """

    def __init__(
        self,
        tb: TestBench,
        name: str,
        *,
        stall: str = "none",
        take: Callable[[int], None] | None = None,
    ):
        self.items: list[int] = []
        self.waited = 0
        """Cycles in which an offer was not taken."""
        self._name = name
        self._take = take or self.items.append
        self._valid, self._ready = tb.handle(f"{name}_valid"), tb.handle(f"{name}_ready")
        self._payload = tb.handle(f"{name}_payload")
        self._stalls = tb.stalls(stall)
        self._is_ready = False
        self._held: int | None = None
        self._ready.value = 0
        tb.agents.append(self)

    def cycle(self) -> None:
        valid = bool(self._valid.value)
        offered = int(self._payload.value) if valid else None
        assert self._held in (None, offered), f"{self._name}: an offer was withdrawn or changed"
        self._held = None
        if offered is not None:
            if self._is_ready:
                self._take(offered)
            else:
                self._held = offered
                self.waited += 1
        ready = self._stalls.go(wanted=self._held is not None)
        if ready != self._is_ready:
            self._is_ready = ready
            self._ready.value = ready
