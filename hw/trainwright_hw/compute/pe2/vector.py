"""Element-wise operations of PE2's engine: bias with activation, and the ReLU mask."""

from amaranth.hdl import C, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Operation
from trainwright_hw.arith.format import LaneFormat
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.control.command_contexts import derived, per_context
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT
from trainwright_hw.stream.delay_line import delay_line, skew


def vector_cycles(arithmetic: LaneFormat) -> int:
    """Return the cycles from two rows at the input to lane 0's value at the output."""
    return arithmetic.product_cycles + 1


class VectorUnit(wiring.Component):
    """BIAS and MASK of ``trainwright.program.descriptors.Compute``, before the requantiser.

    Computes ``act((x << x_shift) + (g << g_shift))`` on decoded operands, where ``act`` is max(0,
    .) with ``relu``, or with ``mask`` ``x if g > 0 else 0``. ``value`` holds ``lanes`` signed
    values of twice the operands' bits, ``vector_cycles`` after their rows where these are
    ``valid``, and 0 otherwise. Accepts a pair of rows per cycle, never stalled. A cycle of
    ``configure`` takes settings from ``command`` for the rows of one of two contexts, two cycles or
    more before the first of them; ``context`` is the rows' context. ``value[n]`` comes n cycles
    after ``value[0]`` (``skew``).

    With wide tensors rows are digits, the highest first, up to a pair that is ``last``: sums so far
    are kept, and multiplied by 2^``DIGIT_WIDTH`` for the next digit. g is positive where its first
    nonzero digit is positive. There is a value only where a pair is ``last``.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._lanes = parameters.lanes
        self._arithmetic = lane_format(parameters)
        width = self._arithmetic.left.width
        # bits of a power of two, signed
        self._factor_width = parameters.most_alignment + 2
        row = data.ArrayLayout(width, parameters.lanes)
        self._by_digits = parameters.wide_tensors
        super().__init__(
            {
                "valid": In(1),
                "context": In(1),
                "configure": In(1),
                "configure_context": In(1),
                "command": In(COMPUTE_LAYOUT),
                "x_row": In(row),
                "g_row": In(row),
                **({"last": In(1)} if self._by_digits else {}),
                "value": Out(signed(parameters.elementwise_width)).array(parameters.lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m, arithmetic = Module(), self._arithmetic
        cycles = arithmetic.product_cycles
        is_mask = self.command.operation == Operation.MASK

        # --- settings of the command, by context --------------------------------------------------

        # A shift is a product with a power of two, which reuses the multipliers. Only the sign of
        # the mask's operand matters, so its factor is 0.
        fields = {
            "mask": is_mask,
            "rectify": self.command.relu & ~is_mask,
            "x_shift": self.command.x_shift,
            "g_shift": self.command.g_shift,
        }
        settings = {
            name: per_context(m, self.configure, self.configure_context, value, name)
            for name, value in fields.items()
        }
        masked, x_shift, g_shift = (settings[name] for name in ("mask", "x_shift", "g_shift"))
        settings |= {
            "x_factor": derived(
                m, lambda context: C(1) << Mux(masked(context), 0, x_shift(context)), "x_factor"
            ),
            "g_factor": derived(
                m, lambda context: Mux(masked(context), 0, C(1) << g_shift(context)), "g_factor"
            ),
        }

        # --- settings of a step, delayed with its words: lane n is n cycles behind lane 0 ---------

        context = delay_line(m, self.context, cycles + 1, "context")
        valid = delay_line(m, self.valid, cycles + self._lanes, "valid", reset_less=False)
        last: list[Value] = []
        if self._by_digits:
            last = delay_line(m, self.last, cycles + self._lanes, "last")
        mask, rectify = (
            delay_line(m, settings[name](context[cycles]), self._lanes, name)
            for name in ("mask", "rectify")
        )
        factors, rows = {}, {}
        # Pairs of lanes share a multiplier on devices that allow it, with the factor in common.
        together = arithmetic.sharing(platform, self._factor_width)
        products: dict[str, list[Value]] = {"x": [], "g": []}
        for name, row in (("x", self.x_row), ("g", self.g_row)):
            factor = Signal(signed(self._factor_width), name=f"{name}_factor")
            m.d.comb += factor.eq(settings[f"{name}_factor"](context[0]))
            factors[name] = delay_line(m, factor, self._lanes, f"{name}_factor")
            rows[name] = skew(m, list(row), f"{name}_row", together=together)

        # --- a lane: two products, their sum, and the mask or the rectifier -----------------------

        for lane in range(self._lanes):
            words = {name: arithmetic.operand(row[lane]) for name, row in rows.items()}
            for name, of_lane in products.items():
                if not of_lane:
                    lanes = [arithmetic.operand(row) for row in rows[name][lane : lane + together]]
                    of_lane += self._products(m, platform, name, lane, factors[name][lane], lanes)
            wide = {name: of_lane.pop(0) for name, of_lane in products.items()}
            # In a pair the second lane's word comes with the first lane's, a cycle before its turn.
            sign_cycles = cycles + lane % together
            is_positive: Value = words["g"] > 0
            total = Signal(self.value[lane].shape(), name=f"total_{lane}")
            term, complete = wide["x"] + wide["g"], valid[cycles + lane]
            if self._by_digits:
                # Digits of one value come one after another; a value is complete with its last
                # digit alone.
                leader = lane - lane % together
                is_positive = _first_sign(m, lane, words["g"], valid[leader], last[leader])
                before = valid[cycles + lane - 1] & last[cycles + lane - 1]
                term += self._sum_so_far(m, total, complete, before)
                complete &= last[cycles + lane]
            positive = delay_line(m, is_positive, sign_cycles + 1, f"positive_{lane}")[-1]
            m.d.comb += total.eq(term)
            # The mask's operand decides by its sign, which has waited for the products beside it.
            zero = (rectify[lane] & total[-1]) | (mask[lane] & ~positive)
            m.d.sync += self.value[lane].eq(Mux(zero | ~complete, 0, total))
        return m

    def _sum_so_far(self, m: Module, total: Signal, valid: Value, last_follows: Value) -> Value:
        """Return the sum of the previous digits, shifted for the next digit; 0 after the last one.

        ``last_follows`` announces the last digit a cycle before.
        """
        # High from reset on, to clear the sum: a reset of its own would cost logic for every bit.
        done = Signal(init=1, name=f"{total.name}_done")
        held = Signal.like(total, name=f"{total.name}_so_far", reset_less=True)
        m.d.sync += done.eq(last_follows)
        with m.If(done):
            m.d.sync += held.eq(self._arithmetic.zero)
        with m.Elif(valid):
            m.d.sync += held.eq(total)
        return self._arithmetic.start(held, digit=C(1, 1))

    def _products(
        self, m: Module, platform, operand: str, lane: int, factor: Value, words: list[Value]
    ) -> list[Value]:
        """Multiply a lane's word by its factor.

        If a multiplier makes two products, also the next lane's, delayed by a cycle.
        """
        name = f"{operand}_{lane}_wide"
        if len(words) == 1:
            spare = operand == "g"
            return [self._arithmetic.multiply(m, platform, name, factor, words[0], spare=spare)]
        pair = self._arithmetic.multiply_pair(m, platform, name, words, factor)
        return [delay_line(m, term, n + 1, f"{name}_late")[-1] for n, term in enumerate(pair)]


def _first_sign(m: Module, lane: int, digit: Value, valid: Value, last: Value) -> Value:
    """Return whether the first nonzero digit of a value, up to this digit, is positive."""
    known, was, positive = (
        Signal(name=f"{name}_{lane}") for name in ("sign_known", "was_positive", "is_positive")
    )
    # A zero digit says nothing about the sign: the first one that is not zero does.
    m.d.comb += positive.eq(Mux(known, was, digit > 0))
    with m.If(valid):
        m.d.sync += [known.eq((known | digit.any()) & ~last), was.eq(positive)]
    return positive
