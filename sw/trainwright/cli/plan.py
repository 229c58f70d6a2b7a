"""``trainwright plan``: ways to compute each layer, their costs, and the choice."""

from dataclasses import dataclass

from trainwright.cli.declare import command as make_command
from trainwright.cli.options import JsonOptions, StepOptions, WideOptions, accelerator_parameters
from trainwright.cli.screen import screen_width
from trainwright.support.settings import Positive


@dataclass(frozen=True, kw_only=True)
class PlanCommandOptions(StepOptions, WideOptions, JsonOptions):
    """Show how a training step of a network is computed, and which alternatives there were.

    First the contraction orders of each layer, those of its gradients among them, the cheapest
    first: an order is a tree of products of two tensors. Those that have names are shown, too: W
    rebuilt from the factors left and right of a bond, both sides of a bond without W, and the
    paper's. Where an order is not the chosen one its row says why. Then what is computed together,
    in slices of how many values of which axes, by which array; and cycles, multiply-accumulates and
    memory of each program, by the cycle model. Utilisation is the useful multiply-accumulates
    (padding and copies left out) over multipliers times cycles.

    Exit status 2, and one line that says what is lacking and what to change, where nothing fits.
    """

    effort: Positive | None = None
    """alternatives after which the best programs so far are taken"""


def _run(options: PlanCommandOptions) -> int:
    from trainwright.cli import plan_report
    from trainwright.cli.output import to_json
    from trainwright.network import UserNames

    network = options.network_named(options.network)
    parameters = accelerator_parameters(options.accelerator, network)
    figures = plan_report.report(network, options.batch, parameters, options.plan, options.effort)
    if options.json:
        print(to_json(figures))
    elif options.wide:
        plan_report.show_wide(figures)
    else:
        plan_report.show(figures, UserNames.of_network(network), screen_width())
    return 0


command = make_command(PlanCommandOptions, _run)
