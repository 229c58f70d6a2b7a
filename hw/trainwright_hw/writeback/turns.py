"""Share a port of the write-back unit among the arrays of a kind, which take turns."""

from collections.abc import Sequence
from functools import reduce

from amaranth.hdl import C, Module, Mux, Value
from amaranth.lib.wiring import In, connect


def share_port(m: Module, port, arrays: Sequence) -> list[Value]:
    """Connect the results of arrays to a port of the write-back unit.

    Returns, for each array, whether the array owns the port: while the array is busy, and also in
    cycles in which the sequencer offers a command, because the settings follow an offered command.
    The sequencer's ports let at most one array be in either state
    (``trainwright.program.engines.rivals``).
    """
    if len(arrays) == 1:
        connect(m, arrays[0].results, port)
        return [C(1)]
    owns: list[Value] = [array.status.busy | array.command.valid for array in arrays]
    clients = [
        {
            path: Value.cast(value)
            for path, _, value in array.results.signature.flatten(array.results)
        }
        for array in arrays
    ]
    for path, member, value in port.signature.flatten(port):
        signal = Value.cast(value)
        # An array of fewer rows than the tallest one has no values for the other rows.
        pairs = [(c[path], own) for c, own in zip(clients, owns, strict=True) if path in c]
        if member.flow == In:
            m.d.comb += signal.eq(reduce(lambda rest, p: Mux(p[1], p[0], rest), pairs, C(0)))
        else:
            # An idle array must not see the end of another array's command.
            m.d.comb += [to.eq(Mux(own, signal, 0)) for to, own in pairs]
    return owns
