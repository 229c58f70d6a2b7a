"""The plans by which a training step can be compiled."""

from trainwright.compiler.errors import CompileError
from trainwright.compiler.limits import require_batch, require_integers
from trainwright.compiler.paper import compile_paper
from trainwright.compiler.step import AUTO, IN_ROWS, PAPER, PAPER_ORDER, PLANS, CompiledStep
from trainwright.lowering.adapter import compiled
from trainwright.lowering.in_rows import compiled_in_rows
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters


def compile_step(
    network: Network,
    batch: int,
    parameters: AcceleratorParameters,
    *,
    plan: str = AUTO,
    input_gradients: bool = False,
) -> CompiledStep:
    """Compile a training step of ``batch`` samples.

    ``plan`` is one of ``trainwright.compiler.PLANS``: "auto" searches contraction orders, layouts
    and tiling; "paper-order" has the contraction order of the paper; "paper" is the schedule of its
    Table 3. With ``input_gradients`` the backward pass also gives the gradients to the inputs.
    Raises ``CompileError`` where the network does not fit.
    """
    if plan not in (*PLANS, IN_ROWS):
        raise CompileError(f"there is no plan {plan!r}; give one of {', '.join(PLANS)}")
    require_batch(batch)
    require_integers(network)
    if plan == PAPER:
        if input_gradients:
            raise CompileError(f"plan {PAPER} has no gradients to the inputs: use plan {AUTO}")
        return compile_paper(network, batch, parameters)
    if plan == IN_ROWS:
        return compiled_in_rows(network, batch, parameters)
    return compiled(
        network, batch, parameters, paper=plan == PAPER_ORDER, input_gradients=input_gradients
    )
