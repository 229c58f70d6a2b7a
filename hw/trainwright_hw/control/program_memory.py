"""The program memory: written a beat at a time, read a descriptor at a time."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import DESCRIPTOR_BITS, LOCAL_WIDTH


class ProgramWritePort(wiring.Signature):
    """Load engine's port of the program memory: a stream of (beat number, beat)."""

    def __init__(self, parameters: AcceleratorParameters):
        layout = data.StructLayout({"address": LOCAL_WIDTH, "beat": parameters.data_width})
        super().__init__({"request": Out(stream.Signature(layout, always_ready=True))})


def descriptor_beats(parameters: AcceleratorParameters) -> int:
    """Return the beats per descriptor."""
    return DESCRIPTOR_BITS // parameters.data_width


class ProgramMemory(wiring.Component):
    """Memory of ``program_depth`` descriptors, side by side in memories of one beat's width.

    Members: ``write``, the load engine's port; ``enable`` and ``number`` of the descriptor to read;
    ``descriptor``, a cycle later and until the next read; ``written``, the last beat of a
    descriptor is written.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        super().__init__(
            {
                "write": In(ProgramWritePort(parameters)),
                "enable": In(1),
                "number": In(exact_log2(parameters.program_depth)),
                "descriptor": Out(DESCRIPTOR_BITS),
                "written": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beats = descriptor_beats(self.parameters)
        beat_width = exact_log2(beats)
        request = self.write.request
        outputs = []
        for beat in range(beats):
            memory = Memory(
                shape=self.parameters.data_width, depth=self.parameters.program_depth, init=[]
            )
            m.submodules[f"beat{beat}"] = memory
            writer, reader = memory.write_port(), memory.read_port()
            m.d.comb += [
                writer.en.eq(request.valid & (request.payload.address[:beat_width] == beat)),
                writer.addr.eq(request.payload.address[beat_width:]),
                writer.data.eq(request.payload.beat),
                reader.en.eq(self.enable),
                reader.addr.eq(self.number),
            ]
            outputs.append(reader.data)
        m.d.comb += [
            self.descriptor.eq(Cat(outputs)),
            self.written.eq(request.valid & (request.payload.address[:beat_width] == beats - 1)),
        ]
        return m
