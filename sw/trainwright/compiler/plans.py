"""Compile a training step by one of several plans.

``compile_step`` checks its arguments; ``step.adapter`` compiles.
"""

from trainwright.compiler.base.compiled import AUTO, FOLLOWED, PLANS, CompiledStep
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.limits import require_batch, require_integers
from trainwright.compiler.base.progress import MOST_EFFORT
from trainwright.compiler.step.adapter import compiled
from trainwright.compiler.step.rows import require_chip
from trainwright.compiler.step.stored import own_parts
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.support.arguments import flag, is_size, plain, require_kind


def require_plan(plan: str) -> None:
    """Raise ``CompileError`` for a plan that does not exist."""
    if plan not in PLANS:
        raise CompileError(f"there is no plan {plan!r}; give one of {', '.join(PLANS)}")


def compile_step(
    network: Network,
    batch: int,
    parameters: AcceleratorParameters,
    *,
    plan: str = AUTO,
    input_gradients: bool = False,
    effort: int = MOST_EFFORT,
) -> CompiledStep:
    """Compile a training step of ``batch`` samples.

    ``plan`` is one of ``trainwright.compiler.PLANS``: "auto" searches contraction orders, layouts
    and tiling; "paper" has the contraction order of the paper, and searches the rest; "small" is
    "auto" with less external memory. With ``input_gradients`` the backward pass also gives the
    gradients to the inputs. After ``effort`` alternatives the best programs so far are taken,
    except in rows of a state on the chip. Raises ``CompileError`` where the network does not fit.
    """
    require_kind("network", network, Network)
    require_kind("parameters", parameters, AcceleratorParameters)
    batch, input_gradients = plain(batch), flag("input_gradients", input_gradients)
    if not is_size(effort):
        raise CompileError(f"effort must be an integer of at least 1, not {effort!r}")
    if plan not in FOLLOWED:
        require_plan(plan)
    require_batch(batch)
    require_integers(network)
    if plan in FOLLOWED:
        require_chip(network, parameters, alone=False)
        input_gradients, effort = False, MOST_EFFORT
    definitions = own_parts(network, batch)
    return compiled(network, batch, parameters, plan, input_gradients, effort, definitions)
