"""Listings: one line a descriptor, with what one wants to know of it."""

import pytest
from cases import random_case
from slowly import mostly_slow

from trainwright.cli import main
from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
    TransferLevel,
)
from trainwright.program.fields import Engine, Operation
from trainwright.program.listing import listing


def line_of(descriptor) -> str:
    lines = listing(Program((descriptor, Halt()), 0)).splitlines()
    assert len(lines) == 2
    return lines[0]


@mostly_slow("seed", range(10), quick=(0, 1, 3))
@pytest.mark.usefixtures("first_program")
def test_listing_one_numbered_line_a_descriptor(seed):
    case = random_case(seed)
    step = compile_step(case.network, case.batch, case.parameters)
    for program in (step.forward, step.backward):
        lines = listing(Program(program.descriptors, 0)).splitlines()
        assert len(lines) == len(program.descriptors)
        for index, (line, d) in enumerate(zip(lines, program.descriptors, strict=True)):
            number, operation = line.split()[:2]
            assert (int(number), operation) == (index, d.operation.name)
            assert not isinstance(d, Compute | Transfer) or f" {d.tensor}: " in line
            assert line == line.rstrip()


def test_loops_are_indented():
    step = compile_step(load_network("digits"), 64, AcceleratorParameters())
    lines = listing(Program(step.backward.descriptors, 0)).splitlines()
    depth = 0
    for line, d in zip(lines, step.backward.descriptors, strict=True):
        depth -= isinstance(d, End)
        body = line[6:]
        assert len(body) - len(body.lstrip(" ")) == 2 * depth
        depth += isinstance(d, Loop)


def test_listing_compute_line_has_every_field():
    d = Compute(
        operation=Operation.PE3,
        levels=(Level(3, x=8, z=4), Level(2, g=5, z=1), Level(7, x=1, g=1)),
        x=100,
        g=20,
        z=300,
        reduce_levels=1,
        tile_level=1,
        last_rows=3,
        z_row_stride=2,
        x_register=2,
        shift=9,
        out_width=12,
        slot=4,
        wait=Engine.LOAD,
        wait_older=Engine.LOAD | Engine.PE1,
        tensor="l1.z2",
    )
    line = line_of(d)
    for part in (
        "PE3   l1.z2: x[100+R2] group[20] -> z[300]",
        "for 3(x+8,z+4) 2*(g+5,z+1) sum 7(x+1,g+1)",
        "z+2 last 3",
        ">>9 to 12 bits",
        "slot 4",
        "; wait LOAD,PE1-1",
    ):
        assert part in line


def test_rows_of_the_second_operand():
    d = Compute(
        operation=Operation.PE4, levels=(Level(2, x=8, z=8), Level(3, x=1, g=1)), x=7, g=90, z=5,
        reduce_levels=1, last_rows=8, x_row_stride=4, z_row_stride=1, g_row_stride=-16,
    )  # fmt: skip
    line = line_of(d)
    assert "PE4   x[7] y[90] -> z[5]" in line and "rows x+4 g-16 z+1 last 8" in line


def test_element_wise_line():
    d = Compute(
        operation=Operation.BIAS, levels=(Level(4, x=1, g=1, z=1),), x=1, g=2, z=3, relu=True,
        x_shift=5, g_shift=6, tensor="l1.a",
    )  # fmt: skip
    line = line_of(d)
    assert "x<<5 b<<6 relu" in line and "wait" not in line


def test_listing_transfer_lines_have_every_field():
    load = Transfer(
        operation=Operation.LOAD,
        address=0x1F000,
        local=64,
        beats=3,
        element_bytes=1,
        levels=(TransferLevel(5, 128, 3),),
        address_register=4,
        tensor="x",
    )
    assert "x: mem[0x01f000+R4] -> pad[64]  3 beats, 1 byte an element" in line_of(load)
    assert "for 5(mem+128,local+3)" in line_of(load)
    store = Transfer(operation=Operation.STORE, address=16, local=7, beats=2, tensor="y")
    assert "y: pad[7] -> mem[0x000010]  2 beats, 2 bytes an element" in line_of(store)


def test_listing_control_lines_have_every_field():
    assert "LOOP  12 times" in listing(Program((Loop(iterations=12), End(), Halt()), 0))
    assert "SET   R1=5 R3=-2" in line_of(Set(values=((1, 5), (3, -2))))
    text = listing(Program((Loop(iterations=2), End(steps=((1, 64), (2, -8))), Halt()), 0))
    assert "END   R1+64 R2-8" in text
    assert text.splitlines()[-1].endswith("; wait LOAD,STORE,PE1,PE2")


def test_listing_command_on_chip_has_every_program(capsys, tmp_path):
    line = ["listing", "digits", "--batch", "16", "--update", "chip", "--save", str(tmp_path)]
    parts = ["samples", "step", "evaluation"]
    (tmp_path / "backward.trwp").write_text("of another step")
    assert main(line) == 0
    printed = [row for row in capsys.readouterr().out.splitlines() if row.startswith("; ")]
    assert [row.split()[1].rstrip(":") for row in printed] == parts
    assert {path.stem for path in tmp_path.glob("*.trwp")} == set(parts)


def test_listing_command_with_program_of_another_step_names_the_programs(capsys):
    assert main(["listing", "digits", "--batch", "16", "--part", "step"]) == 2
    assert "the programs forward, backward; add --update chip" in capsys.readouterr().err
    chip = ["listing", "digits", "--batch", "16", "--update", "chip"]
    assert main([*chip, "--part", "backward"]) == 2
    assert "samples, step, evaluation; omit --update chip" in capsys.readouterr().err
