"""Small functions of a few bits, as multiplexers that share common parts."""

from collections.abc import Sequence

from amaranth.hdl import C, Module, Mux, Signal, Value

Table = tuple[int | None, ...]


class TruthTables:
    """Functions of ``inputs``, the last input deciding first: an ordered binary decision diagram.

    Posit words are read from their first bit on, an order in which such diagrams are small.
    """

    def __init__(self, m: Module, inputs: Sequence[Value], name: str):
        self._m, self._inputs, self._name = m, list(inputs), name
        self._nodes: dict[tuple[int, Table], Value] = {}

    def function(self, table: Sequence[int | None]) -> Value:
        """Build the bit ``table[n]`` for inputs that spell n, first input lowest.

        None in the table means that either value will do. Raises ``ValueError`` for a table of
        another length.
        """
        if len(table) != 1 << len(self._inputs):
            raise ValueError(f"{len(self._inputs)} inputs have no table of {len(table)} bits")
        return self._function(len(self._inputs), tuple(table))

    def _function(self, inputs: int, table: Table) -> Value:
        known = set(table) - {None}
        if len(known) < 2:
            return C(known.pop() if known else 0, 1)
        if (inputs, table) in self._nodes:
            return self._nodes[inputs, table]
        middle = len(table) // 2
        low, high = table[:middle], table[middle:]
        # Both halves agree where both are specified: this input does not matter.
        if all(a == b or None in (a, b) for a, b in zip(low, high, strict=True)):
            both = tuple(b if a is None else a for a, b in zip(low, high, strict=True))
            value = self._function(inputs - 1, both)
        else:
            on, off = self._function(inputs - 1, high), self._function(inputs - 1, low)
            value = Signal(name=f"{self._name}_{len(self._nodes)}")
            self._m.d.comb += value.eq(Mux(self._inputs[inputs - 1], on, off))
        self._nodes[inputs, table] = value
        return value
