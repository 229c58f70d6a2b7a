"""The number format of every tensor that programs read or write, by its name."""

from trainwright.compiler.names import activation_name, gradient_name
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed, Format, Posit
from trainwright.network import Network


class TensorFormats:
    """Formats of the network's classes of tensors, and of tensors by name.

    Operands that a program does not write itself are known from the start; ``add`` what it writes.
    """

    def __init__(self, network: Network):
        self.network = network
        last = len(network.layers)
        self._known: dict[str, Format] = {gradient_name(last): network.format("gradient")}
        for number in range(last + 1):
            kind = "intermediate" if number == last else "activation"
            name = activation_name(number)
            self._known[name] = network.tensor_format(name, kind)
        for number in range(1, last + 1):
            self._known[f"l{number}.b"] = Fixed(network.widths.bias)
            self._known[f"l{number}.t"] = network.format("intermediate")
            for n, fmt in enumerate(network.factor_formats(number - 1), 1):
                self._known[f"l{number}.G{n}"] = fmt

    def of(self, name: str) -> Format:
        """The format of a tensor."""
        return self._known[name]

    def add(self, name: str, fmt: Format) -> None:
        """A tensor that the program writes."""
        self._known[name] = fmt

    def of_class(self, kind: TensorClass) -> Format:
        """The format of the tensors of a class."""
        return self.network.format(kind.value)

    def own(self, name: str) -> Format | None:
        """The format that the network gives to one tensor by name."""
        return dict(self.network.singles).get(name)

    def underflow_zero(self, kind: TensorClass) -> bool:
        """Whether what underflows in tensors of a class may become 0."""
        return self.network.underflow_zero(kind.value)


def operand_format(fmt: Format, width: int) -> Format:
    """That of an operand of the multipliers; ``width`` is that of its words in fixed point.

    A tensor that has a format of its own may have more.
    """
    return fmt if isinstance(fmt, Posit) else Fixed(max(width, fmt.width))
