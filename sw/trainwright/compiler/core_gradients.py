"""Gradients of the factors on one side of a bond, from that of their contraction, on chip.

Equations 14 to 19 on a span of factors: PE1 contracts from the right, PE2 from the left, each
gradient from the tensor in which the factors to its right are contracted already.
"""

from itertools import pairwise

from trainwright.compiler.builder import Rule
from trainwright.compiler.factor_gradient import leading_sizes
from trainwright.compiler.images import Image, Use, image
from trainwright.compiler.memory import Region
from trainwright.compiler.spans import Span
from trainwright.compiler.weight_gradient import right_stages
from trainwright.compiler.workspace import Workspace
from trainwright.fixed.scale import TensorClass
from trainwright.network import Network


class CoreGradients:
    """The factors of a span: ``load`` their images, then ``emit`` from the span's source."""

    def __init__(self, w: Workspace, network: Network, span: Span):
        self.w, self.network, self.span = w, network, span
        self.layer = network.layers[span.number]
        self.width = network.widths.gradient

    def load(self) -> None:
        """Load the images of all factors into the stores."""
        self._rights = {
            n: self._image(n, Use.RIGHT) for n in range(self.span.first + 1, self.span.last + 1)
        }
        self._lefts = [self._image(n, Use.LEFT) for n in range(self.span.first, self.span.last)]

    def _image(self, n: int, use: Use) -> tuple[Image, Region]:
        spec = image(self.network, self.span.number, n, use, self.w.p)
        return spec, self.w.b.load_image(spec, self.w.memory.buffers[spec.name])

    def emit(self, source: Region) -> None:
        """Emit the chains; ``source`` is given back, the gradients are stored later."""
        w, span = self.w, self.span
        for stage in right_stages(self.layer, span, w.p):
            n = stage.index
            target = w.b.pad.allocate(span.result(n), stage.a * stage.out_rows)
            self._right(source, target, n, stage.a)
            self._left(source, n)
            w.b.pad.free(source)
            source = target
        w.store_later(span.result(span.first + 1), source)

    def _right(self, x: Region, z: Region, n: int, a: int) -> None:
        span, name = self.span, self.span.result(n)
        count = a * self.layer.factor_shapes[n][0]
        tensor = self.w.written(name, TensorClass.GRADIENT, self.width, count)
        rule = Rule(span.level(n + 1), f"l{span.number + 1}.G{n + 1}", tensor)
        spec, entries = self._rights[n]
        self.w.b.pe1(x, z, spec, entries, a=a, rule=rule, x_width=self.width)

    def _left(self, x: Region, n: int) -> None:
        """The gradient of factor ``n``: the factors before it contracted from the left."""
        w, span = self.w, self.span
        lefts = self._lefts[: n - span.first]
        sizes = leading_sizes(self.network, span.number, [spec for spec, _ in lefts])
        rows, columns = x.count // sizes[0], self._columns(n)
        name, x_name, made = f"l{span.number + 1}.dG{n + 1}", span.level(n + 1), None
        for k, ((spec, entries), (_, size)) in enumerate(zip(lefts, pairwise(sizes), strict=True)):
            out = name if k == len(lefts) - 1 else f"{name}.t{k + 1}"
            tensor = w.written(out, TensorClass.GRADIENT, self.width, size * columns)
            z = w.b.pad.allocate(out, size * rows)
            rule = Rule(x_name, f"l{span.number + 1}.G{spec.index + 1}", tensor)
            c = size // spec.free * rows
            w.b.pe2(x, z, spec, entries, a=1, c=c, rule=rule, x_width=self.width)
            if made:
                w.b.pad.free(made)
            x, x_name, made = z, out, z
        w.store_later(name, x)

    def _columns(self, n: int) -> int:
        _, j, i, right = self.layer.factor_shapes[n]
        return j * i * right
