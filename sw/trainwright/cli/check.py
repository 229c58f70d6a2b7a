"""``trainwright check``: one training step on golden model and hardware, every tensor compared."""

import json
import re
from dataclasses import replace
from typing import Annotated

from trainwright.cli import options as shared
from trainwright.cli.backend import SimulationOptions, opened_for
from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.sizes import ExplainedAccelerator
from trainwright.fixed.random_bits import ROUNDINGS
from trainwright.onchip.choices import LOSS_NAMES
from trainwright.support.settings import OneOf, Option, Positive, require_unset

PRODUCT_TYPES = ("fp32-i8", "fp64-i8", "fp128-i8")
"""Types of ``--product``, as ``trainwright.ape`` names them; importing it would take torch."""


def _sizes(text: str) -> tuple[int, int, int]:
    sizes = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})x([0-9]{1,5})", text)
    if not sizes or "0" in sizes.groups():
        raise ValueError(f"must be MxKxN, such as 32x64x16, not {text!r}")
    m, k, n = map(int, sizes.groups())
    return m, k, n


class CheckOptions(
    shared.FormOptions,
    shared.SeedOptions,
    shared.PlanOptions,
    shared.JsonOptions,
    ExplainedAccelerator,
    SimulationOptions,
):
    """Compare the hardware with the golden model bit by bit, over one training step.

    The operands are random over the whole range of their formats. The comparison covers every row
    that any engine writes to the scratchpad, the external memory and the statistics. The exit
    status is 1 if anything differs.

    The golden model executes programs by a C kernel. --backend golden compares that kernel with the
    golden model's readable interpreter (trainwright.golden.interpreter) in the same way.

    Short programs of hazards follow, in which every wait of one engine for another counts: programs
    of a network rarely bring two commands close enough. The simulation runs them with a memory
    without latency, too.

    --update chip runs eight whole steps by one start, with loss and update. The second step looks
    for columns to cut, and a test set is classified behind the last. Losses, exponents and state
    are also compared with their definitions (trainwright.onchip).

    --product checks a matrix product in floating point in place of a step: by residues on
    multipliers of 8 bits (docs/reference/ape.md), against a wide multiplier. The accelerator then
    has words of 8 bits and wide_tensors=1 by default.

    Utilisation (`mac_utilisation` in --json) is the useful multiply-accumulates, `macs`, over
    multipliers times cycles: padding and copies are left out (docs/reference/cycles.md).

    Examples
    --------
      trainwright check                             digits on the simulated hardware
      trainwright check --backend golden            the C kernel against the interpreter
      trainwright check --network fashion --accelerator lanes=8 --accelerator pe1_rows=4
      trainwright check --update chip               loss and update on the accelerator, too
    """

    network: Annotated[str, Option(metavar="NAME")] = "digits"
    """network to check"""
    batch: Positive = 64
    """samples of a batch"""
    backend: Annotated[str, Option(metavar="NAME")] = "rtl"
    """back end to compare with the golden model"""
    rounding_mode: Annotated[str, OneOf(ROUNDINGS)] = ROUNDINGS[0]
    """results that are rounded at random"""
    update: Annotated[str, OneOf(("host", "chip"))] = "host"
    """chip: eight steps by one start, with loss and update"""
    steps: Positive | None = None
    """steps of --update chip by one start (default: 8)"""
    product: Annotated[tuple[int, int, int] | None, Option(metavar="MxKxN", parse=_sizes)] = None
    """matrix product to check in place of a step: M x K by K x N"""
    dtype: Annotated[str | None, OneOf(PRODUCT_TYPES)] = None
    """numbers of --product: float32, float64, or sums of two float64 (default: fp32-i8)"""
    loss: Annotated[str | None, OneOf(LOSS_NAMES)] = None
    """loss of --update chip (default: cross-entropy)"""


def _check_product(options: CheckOptions, sizes: tuple[int, int, int]) -> int:
    from trainwright.check.product import check_product, summary

    of_steps = "network batch rounding_mode update steps loss plan formats ranks".split()
    require_unset(options, of_steps, "is for a training step: omit it, or omit --product")
    parameters = shared.accelerator_parameters(options.accelerator, narrow=True)
    with opened_for(options, parameters) as accelerator:
        dtype = options.dtype or PRODUCT_TYPES[0]
        outcome = check_product(dtype, sizes, accelerator, seed=options.seed)
    figures = outcome.to_dict()
    print(json.dumps(figures) if options.json else summary(figures, outcome.compared))
    return 1 if outcome.differing else 0


def _run(options: CheckOptions) -> int:
    from trainwright.check.hazards import check_hazards
    from trainwright.check.step import HARDWARE, check_step, summary
    from trainwright.check.training import STEPS, check_training

    if options.product is not None:
        return _check_product(options, options.product)
    require_unset(options, ["dtype"], "is for a matrix product: add --product, such as 32x64x16")
    on_chip = options.update == "chip"
    stochastic = options.rounding_mode != ROUNDINGS[0]
    if not on_chip:
        require_unset(options, ["loss", "steps"], "is for a step on the chip: add --update chip")
    elif stochastic:
        raise OptionError("--rounding-mode does not go with --update chip: omit it")
    network = options.network_named(options.network)
    # Refused before a simulator is built.
    parameters, _ = shared.accelerator_and_place(options, network, stochastic=stochastic)
    with opened_for(options, parameters) as accelerator:
        if on_chip:
            outcome = check_training(
                network, options.batch, accelerator, seed=options.seed,
                loss=options.loss or LOSS_NAMES[0], steps=options.steps or STEPS,
                plan=options.plan,
            )  # fmt: skip
        else:
            outcome = check_step(
                network, options.batch, accelerator, seed=options.seed, plan=options.plan,
                rounding=options.rounding_mode,
            )  # fmt: skip
        if outcome.compared == HARDWARE:
            outcome = replace(outcome, hazards=check_hazards(accelerator, options.seed))
        outcome = replace(outcome, rtl_blocks=getattr(accelerator, "uncovered", ()))
    figures = outcome.to_dict()
    print(json.dumps(figures) if options.json else summary(figures, outcome.compared))
    return 1 if outcome.differing else 0


command = make_command(CheckOptions, _run)
