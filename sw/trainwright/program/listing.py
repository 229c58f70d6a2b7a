"""Programs for people: one line a descriptor, its loop nest and its waits."""

from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from typing import Any

from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
    modulus,
)
from trainwright.program.engines import ENGINE_OF, EVERY_ENGINE, contraction_of, sums_lanes
from trainwright.program.exponents import MoveScales, Scalar, ScalarKind
from trainwright.program.fields import Engine, Operation
from trainwright.program.samples import Samples
from trainwright.program.vector import (
    WIDTH,
    Addend,
    Code,
    Instruction,
    Kind,
    Memory,
    Rounding,
    ShiftBy,
    Total,
    Vector,
    When,
)
from trainwright.support.text import amount


def _address(base: int, register: int, *, external: bool = False) -> str:
    text = f"{base:#08x}" if external else str(base)
    return f"{text}+R{register}" if register else text


def _wait(wait: Engine, older: Engine) -> str:
    names = [f"{e.name}{'' if e & wait else '-1'}" for e in EVERY_ENGINE if e & (wait | older)]
    return "  ; wait " + ",".join(names) if names else ""


def _levels(levels: tuple[Level, ...], reduce_levels: int, tile_level: int) -> str:
    parts = []
    for index, level in enumerate(levels):
        steps = ",".join(
            f"{name}{getattr(level, name):+d}" for name in "xgz" if getattr(level, name)
        )
        mark = "*" if index == tile_level and index < len(levels) - reduce_levels else ""
        parts.append(f"{level.count}{mark}" + (f"({steps})" if steps else ""))
    outer, inner = parts[: len(parts) - reduce_levels], parts[len(parts) - reduce_levels :]
    text = "for " + " ".join(outer) if outer else ""
    return text + (f" sum {' '.join(inner)}" if inner else "")


def _compute(d: Compute) -> str:
    array = contraction_of(d.operation)
    by_entries = sums_lanes(d.operation)
    # The second operand of the other operations is the bias or the mask.
    source = "y" if by_entries else "group" if array else "b"
    operands = (
        f"x[{_address(d.x, d.x_register)}] {source}[{_address(d.g, d.g_register)}] -> "
        f"z[{_address(d.z, d.z_register)}]"
    )
    zero = " or 0" if d.underflow_zero else ""
    to = f"format {d.z_format}{zero}" if d.z_format else f"{d.out_width} bits"
    by = str(d.shift)
    if d.z_exponent:
        floor = "exact " if d.exact else ""
        by = f"({floor}e{d.z_exponent} of e{d.x_exponent} e{d.g_exponent})"
    scale = f">>{by}{' stochastic' if d.stochastic else ''} to {to}"
    if d.digits:
        scale = f"digits {scale}" if d.digits == 1 else f"pairs of digits {scale}"
    if d.x_format or d.g_format:
        scale = f"formats {d.x_format} {d.g_format} {scale}"
    if d.operation is Operation.BIAS:
        scale = f"x<<{d.x_shift} b<<{d.g_shift} {'relu ' if d.relu else ''}{scale}"
    nest = _levels(d.levels, d.reduce_levels, d.tile_level)
    entries = f" g{d.g_row_stride:+d}" if by_entries else ""
    rows = f"rows x+{d.x_row_stride}{entries} z+{d.z_row_stride} last {d.last_rows}"
    return f"{operands}  {nest}  {rows}  {scale}  slot {d.slot}"


def _transfer(d: Transfer) -> str:
    outside = f"mem[{_address(d.address, d.address_register, external=True)}]"
    inside = f"pad[{_address(d.local, d.local_register)}]"
    arrow = f"{outside} -> {inside}"
    if d.operation is Operation.STORE:
        arrow = f"{inside} -> {outside}"
    nest = " ".join(f"{v.count}(mem{v.address:+d},local{v.local:+d})" for v in d.levels)
    size = f"{amount(d.beats, 'beat')}, {amount(d.element_bytes, 'byte')} an element"
    return f"{arrow}  {size}" + (f"  for {nest}" if nest else "") + _when(d)


def _when(d: Transfer | Vector) -> str:
    m = modulus(d.eighth) if d.eighth else 1
    return f"  in steps of {d.eighth - m} modulo {m}" if m > 1 else ""


def _samples(d: Samples) -> str:
    outside = f"mem[{_address(d.address, d.address_register, external=True)}]"
    inside = f"pad[{_address(d.local, d.local_register)}]"
    order = "in order"
    if d.drawn:
        order = f"drawn from {d.total}, epochs of {d.order_length} from {d.order_first}"
    return (
        f"{outside} -> {inside} pad[{d.targets}]  for {d.samples}(mem+{d.stride},"
        f"local{d.local_step:+d}) {order}  {amount(d.beats, 'beat')} of {d.pixels} bits a pixel to "
        f"{d.input_bits} bits"
    )


_ROUNDED = {
    Rounding.FLOOR: "",
    Rounding.EVEN: " even",
    Rounding.UP: " up",
    Rounding.RANDOM: " random",
    Rounding.RANDOM_NEXT: " random'",
}
_WHEN = {When.POSITIVE: "> 0", When.NEGATIVE: "< 0", When.ZERO: "== 0"}


def instruction_text(i: Instruction) -> str:
    """Write an instruction as an equation: registers r, constants k, streams s."""
    second = f"k{i.k}" if i.use_k else f"r{i.b}"
    a = f"s{i.stream}" if i.memory is Memory.READ else f"r{i.a}"
    x = {
        Kind.PASS: a,
        Kind.PRODUCT: f"{a} * {second}",
        Kind.TABLE: f"table{i.b}({a})",
        Kind.LANE: "lane",
        Kind.AND: f"{a} & {second}",
    }.get(i.kind, f"{i.kind.name.lower()}({a})")
    if i.kind in (Kind.MAXIMUM, Kind.MINIMUM):
        x = x[:-1] + f", {second})"
    y = {Addend.PLUS: f" + r{i.c}", Addend.MINUS: f" - r{i.c}"}.get(i.addend, "")
    y = f" + k{i.k}" if i.addend is Addend.CONSTANT else y
    by = {ShiftBy.SCALAR: f"shift{i.shift}", ShiftBy.FIELD: str(i.shift)} | {
        ShiftBy.C: f"r{i.c}",
        ShiftBy.A: f"r{i.a}",
    }
    shift = "" if by[i.shift_by] == "0" else f" >> {by[i.shift_by]}{_ROUNDED[i.rounding]}"
    fit = "" if i.width == WIDTH else f" {'wrapped' if i.wrap else 'to'} {i.width}"
    to = [f"r{i.d}"] if i.keep else []
    to += [f"s{i.stream}"] if i.memory is Memory.WRITE else []
    to += [i.total.name.lower()] if i.total is not Total.NONE else []
    when = f" where r{i.c} {_WHEN[i.when]}" if i.when is not When.ALWAYS else ""
    return f"{', '.join(to) or '-'} = {x}{y}{shift}{fit}{when}"


def _code(d: Code) -> str:
    return "".join(
        f"\n        {number:2d}  {instruction_text(instruction)}"
        for number, instruction in enumerate(d.instructions, d.first)
    )


def _vector(d: Vector) -> str:
    used = d.reads | d.writes
    streams = " ".join(
        f"s{number}{'' if d.writes >> number & 1 else '?'}[{stream.base}]"
        f"({stream.outer:+d},{stream.inner:+d})"
        for number, stream in enumerate(d.streams)
        if used >> number & 1
    )
    constants = " ".join(f"k{n}={value}" for n, value in enumerate(d.constants))
    run = f"{d.entry} to {d.entry + d.length - 1}"
    given = "".join(f"  {_scalar(scalar)}" for scalar in d.scalars)
    return (
        f"{run} for {d.outer} {d.inner}  {streams}  {constants}{given}  key {d.key}  slot {d.slot}"
        + _when(d)
    )


def _scalar(scalar: Scalar) -> str:
    """Write a scalar of the exponent file; e is a slot."""
    value = f"e{scalar.plus} - e{scalar.minus} {scalar.offset:+d}"
    if scalar.kind is ScalarKind.SHIFT:
        return f"shift{scalar.to}={value}"
    return (
        f"k{scalar.to}=2^({value})" if scalar.kind is ScalarKind.POWER else f"k{scalar.to}={value}"
    )


def _scales(d: MoveScales) -> str:
    return "".join(
        f"\n        e{entry.exponent} by slot {entry.statistics}, {entry.low} to {entry.high}"
        + (f"; before: e{entry.copy}" if entry.copy else "")
        for entry in d.entries
    )


class _Reading:
    """View of a descriptor that notes which attributes a text has told."""

    def __init__(self, d: Descriptor):
        self._descriptor, self._told = d, {"operation", "wait", "wait_older", "tensor"}

    def __getattr__(self, name: str) -> Any:
        self._told.add(name)
        return getattr(self._descriptor, name)

    def rest(self) -> str:
        """Return the attributes that are not told yet, where they differ from their defaults."""
        d = self._descriptor
        defaults = {field.name: field.default for field in dataclass_fields(d)}
        texts = (
            f"  {row.name}={int(value)}"
            for row in d.table
            if row.field and not (row.count or row.derived or row.name in self._told)
            if (value := getattr(d, row.name)) != defaults[row.name]
        )
        return "".join(texts)


def _loop(d: Loop) -> str:
    return amount(d.iterations, "time")


def _end(d: End) -> str:
    return " ".join(f"R{r}{v:+d}" for r, v in d.steps)


def _set(d: Set) -> str:
    by = " + step" if d.by_step else ""
    seed = () if d.seed is None else (f"seed={d.seed:#010x}{by}",)
    return " ".join([*seed, *(f"R{r}={v}" for r, v in d.values)])


_TEXTS: dict[type[Descriptor], Callable[[Any], str]] = {
    Code: _code,
    Vector: _vector,
    Compute: _compute,
    Transfer: _transfer,
    Samples: _samples,
    Loop: _loop,
    End: _end,
    Set: _set,
    MoveScales: _scales,
}
"""Functions that write a descriptor as text. Fields that a function does not read follow by their
names; a class without a function has all fields by name."""


def _body(d: Descriptor) -> str:
    reading = _Reading(d)
    text = _TEXTS.get(type(d), lambda _: "")
    return text(reading) + reading.rest()


def listing(program: Program, label: Callable[[str], str] = str) -> str:
    """Write the program as text.

    Levels read outermost first, ``count(step of each operand)``; ``*`` marks the tile level and
    ``sum`` starts the levels that are summed. Steps are scratchpad rows or operand groups; ``mem``
    addresses are bytes. After ``wait`` come the engines that must be idle, and with ``-1`` those
    whose commands before the last one must be done. ``label`` spells the name of a tensor.
    """
    lines, depth = [], 0
    for index, d in enumerate(program.descriptors):
        if isinstance(d, End):
            depth -= 1
        name = getattr(d, "tensor", "")
        head = f"{index:4d}  {'  ' * depth}{d.operation.name:<5}"
        spelled = f"{label(name)}: " if name and d.operation in ENGINE_OF else ""
        lines.append(f"{head} {spelled}{_body(d)}{_wait(d.wait, d.wait_older)}".rstrip())
        if isinstance(d, Loop):
            depth += 1
    return "\n".join(lines) + "\n"
