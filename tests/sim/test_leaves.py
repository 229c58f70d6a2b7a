"""Models of leaf blocks in lockstep with the RTL that they stand for."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from amaranth.hdl import C, Cat, Elaboratable, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.compute.loop_nest import LoopNest
from trainwright_hw.compute.pe1.dot_array import DotProductArray
from trainwright_hw.compute.pe2.drain import Drain
from trainwright_hw.compute.pe2.operands import Operands
from trainwright_hw.compute.pe2.outer_array import OuterProductArray
from trainwright_hw.compute.pe2.vector import VectorUnit
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT
from trainwright_hw.storage.banks import Banks
from trainwright_hw.storage.ports import bank_and_row, row_layout
from trainwright_hw.storage.scratchpad import Scratchpad
from trainwright_hw.stream.registered_queue import RegisteredQueue
from trainwright_hw.writeback.lanes import EncodedLanes
from trainwright_hw.writeback.row_sums import RowSums
from trainwright_sim.leaves import catalogue
from trainwright_sim.leaves.catalogue import LEAVES
from trainwright_sim.leaves.leaf import members
from trainwright_sim.leaves.lockstep import Fed, Ports, logs, sized, stimulus

FULL = AcceleratorParameters(scratchpad_rows=64)
WHOLE = replace(FULL, lanes=8, pe1_rows=4, pe2_rows=4)
NARROW = replace(WHOLE, word_width=8)
WIDE = replace(NARROW, wide_tensors=True)
CYCLES = 6000


class Rows(wiring.Component):
    """PE2's array, drain and write-back lanes, and the vector unit where it has a model."""

    def __init__(self, p: AcceleratorParameters):
        self._p, word = p, p.word_width
        super().__init__(
            {
                **dict.fromkeys(("valid", "last", "digit", "due", "of_column"), In(1)),
                **{"elementwise": In(1), "context": In(1), "configure": In(1), "of": In(1)},
                **{"x_row": In(row_layout(p)), "g_row": In(row_layout(p))},
                **{"row": In(range(p.pe2_rows)), "number": In(range(p.pe1_rows))},
                **{"shift": In(6), "out_width": In(5), "kind": In(1), "relu": In(1)},
                **{"x_shift": In(4), "g_shift": In(4), "sums": In(p.pe1_rows * p.vector_width)},
                **{"word": Out(p.lanes * p.result_width), "saturated": Out(p.lanes)},
                **{"total": Out(p.result_width + 4), "count": Out(p.lanes.bit_length())},
            }
        )
        assert len(self.x_row.as_value()) == word * p.lanes

    def elaborate(self, platform) -> Module:
        m, p = Module(), self._p
        m.submodules.array = array = OuterProductArray(p)
        m.submodules.drain = drain = Drain(p)
        m.submodules.lanes = lanes = EncodedLanes(p)
        m.submodules.sums = sums = RowSums(p, arithmetic=lane_format(p))
        for name in ("valid", "last", "row", *(["digit"] if p.narrow else [])):
            m.d.comb += getattr(array, name).eq(getattr(self, name))
        m.d.comb += [array.x_row.eq(self.x_row), array.g_row.eq(self.g_row), drain.due.eq(self.due)]
        if not p.wide_tensors:
            m.submodules.vector = vector = VectorUnit(p)
            self._vector(m, vector)
            m.d.comb += Cat(*drain.elementwise).eq(Cat(*vector.value))
        for name in ("of_column", "number", "shift", "out_width"):
            m.d.comb += getattr(lanes, name).eq(getattr(self, name))
        m.d.comb += [
            Cat(*drain.sum).eq(Cat(*array.value)),
            Cat(*lanes.row).eq(Cat(*drain.value)),
            Cat(*lanes.column).eq(self.sums),
            *(Cat(*to).eq(Cat(*lanes.word)) for to in ([self.word], sums.word)),
            *(Cat(*to).eq(Cat(*lanes.saturated)) for to in ([self.saturated], sums.saturated)),
            self.total.eq(sums.sum),
            self.count.eq(sums.saturations),
        ]
        return m

    def _vector(self, m: Module, vector: VectorUnit) -> None:
        command = vector.command
        m.d.comb += [
            *(getattr(vector, name).eq(getattr(self, name)) for name in ("x_row", "g_row")),
            *(getattr(vector, name).eq(getattr(self, name)) for name in ("context", "configure")),
            *(command[name].eq(getattr(self, name)) for name in ("relu", "x_shift", "g_shift")),
            vector.valid.eq(self.elementwise),
            vector.configure_context.eq(self.of),
            command.operation.eq(C(6, 4) + self.kind),
        ]


class Pad(wiring.Component):
    """The scratchpad behind queues, as it is in the accelerator."""

    def __init__(self, p: AcceleratorParameters, readers: int = 5, writers: int = 2):
        self._p, self._readers, self._writers = p, readers, writers
        row = p.lanes * p.word_width
        super().__init__(
            {
                **{f"read{n}": In(1) for n in range(readers)},
                **{f"read_address{n}": In(LOCAL_WIDTH) for n in range(readers)},
                **{f"write{n}": In(1) for n in range(writers)},
                **{f"write_address{n}": In(LOCAL_WIDTH) for n in range(writers)},
                **{f"write_row{n}": In(row) for n in range(writers)},
                **{f"row{n}": Out(row + 2) for n in range(readers)},
                "taken": Out(writers),
            }
        )

    def elaborate(self, platform) -> Module:
        m, p = Module(), self._p
        m.submodules.pad = pad = Scratchpad(p, readers=self._readers, writers=self._writers)
        for n, port in enumerate(pad.read):
            queue = RegisteredQueue(width=LOCAL_WIDTH, depth=4)
            m.submodules[f"reads{n}"] = queue
            m.d.comb += [
                queue.w_en.eq(getattr(self, f"read{n}")),
                queue.w_data.eq(getattr(self, f"read_address{n}")),
                port.request.valid.eq(queue.r_rdy),
                port.request.payload.eq(queue.r_data),
                queue.r_en.eq(port.request.ready),
                getattr(self, f"row{n}").eq(Cat(port.row, port.valid, port.request.ready)),
            ]
        for n, port in enumerate(pad.write):
            banks = p.scratchpad_banks
            queue = RegisteredQueue(width=LOCAL_WIDTH + banks, depth=2, flags=banks)
            m.submodules[f"writes{n}"] = queue
            address = getattr(self, f"write_address{n}")
            bank, _ = bank_and_row(p, address)
            m.d.comb += [
                queue.w_en.eq(getattr(self, f"write{n}")),
                queue.w_data.eq(Cat((C(1, banks) << bank)[:banks], address)),
                port.request.valid.eq(queue.r_rdy),
                Cat(port.banks, port.request.payload).eq(queue.r_data),
                queue.r_en.eq(port.request.ready),
                port.row.eq(getattr(self, f"write_row{n}")),
                self.taken[n].eq(port.request.ready),
            ]
        return m


def queue(
    width: int, depth: int, counted: bool = False, flags: int = 0
) -> tuple[Elaboratable, Ports]:
    block = RegisteredQueue(width=width, depth=depth, counted=counted, flags=flags)
    return block, catalogue.REGISTERED_QUEUE.ports(block)


def blocks(p: AcceleratorParameters) -> dict[str, tuple[Elaboratable, Ports]]:
    """Return every block of one accelerator that has a model."""
    dots, nest, rows = DotProductArray(p), LoopNest(p), Rows(p)
    banks, pad = Banks(p, readers=3, writers=2), Pad(p)
    plain = {"dots": dots, "nest": nest, "rows": rows, "operands": Operands(p)}
    return {
        **{name: (block, members(block)) for name, block in plain.items()},
        "banks": (banks, members(banks)),
        "pad": (pad, members(pad)),
        "rowqueue": queue(width=256, depth=16, counted=True),
        "flagged": queue(width=26, depth=2, flags=4),
        "small": queue(width=50, depth=3),
    }


def fed(port: str, width: int, bits: Value, mode: Value) -> Value:
    """Draw inputs like ``stimulus``, with short loops and at most one writer of a bank."""
    if port == "command":
        parts, at = [], 0
        for name, field in COMPUTE_LAYOUT:
            part = bits[at : at + field.width]
            short = name.startswith("count")
            parts.append(Cat(part[:2], C(0, field.width - 2)) if short else part)
            at += field.width
        return Cat(*parts)
    if port == "granted":
        return Cat(*(bits[n] & ~bits[n - 1] if n % 2 else bits[n] for n in range(width)))
    if port == "sums":
        return sized(bits[:width], mode, word=48, low=20)
    return stimulus(port, width, bits, mode)


def differences(ours: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the first cycle in which a block differs, by name."""
    return {
        name: int((ours[name] != other[name]).any(axis=1).argmax())
        for name in ours
        if (ours[name] != other[name]).any()
    }


@pytest.mark.parametrize(
    "p",
    [
        pytest.param(WHOLE, id="whole", marks=pytest.mark.slow),
        pytest.param(FULL, id="full", marks=pytest.mark.slow),
        pytest.param(NARROW, id="narrow", marks=pytest.mark.slow),
        pytest.param(WIDE, id="wide", marks=pytest.mark.slow),
    ],
)
def test_models_are_their_blocks_in_every_cycle(p):
    rtl, models = logs(lambda: Fed(blocks(p), fed), LEAVES, seed=7, cycles=CYCLES)
    assert differences(rtl, models) == {}
    for name, log in rtl.items():
        assert len(np.unique(log, axis=0)) > 100, f"{name} hardly moves"
