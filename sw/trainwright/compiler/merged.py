"""A layer split at a bond: W(j, i) = sum of Left(p, u, k) Right(k, q, v), j = (p, q), i = (u, v).

Left is the contraction of the factors up to the bond, Right of those after it; both are made on the
accelerator once in each program, exactly where 16 bits are enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from trainwright.compiler.builder import Written
from trainwright.compiler.row_images import Arrangement, RowImage, padded, row_image
from trainwright.compiler.workspace import Operand, Workspace
from trainwright.fixed.scale import TensorClass
from trainwright.network import Layer, Network
from trainwright.parameters import AcceleratorParameters


@dataclass(frozen=True)
class Split:
    """Layer ``number`` (from 0) of a network, split after ``bond`` factors."""

    network: Network
    number: int
    bond: int

    @property
    def layer(self) -> Layer:
        """The layer."""
        return self.network.layers[self.number]

    @property
    def p(self) -> int:
        """Size of p: outputs of the factors on the left."""
        return prod(self.layer.outputs[: self.bond])

    @property
    def q(self) -> int:
        """Size of q: outputs of the factors on the right."""
        return prod(self.layer.outputs[self.bond :])

    @property
    def u(self) -> int:
        """Size of u: inputs of the factors on the left."""
        return prod(self.layer.inputs[: self.bond])

    @property
    def v(self) -> int:
        """Size of v: inputs of the factors on the right."""
        return prod(self.layer.inputs[self.bond :])

    @property
    def k(self) -> int:
        """Rank of the bond."""
        return self.layer.bonds[self.bond]

    def name(self, what: str) -> str:
        """Name of a tensor of this layer."""
        return f"l{self.number + 1}.{what}"

    def factor(self, n: int) -> str:
        """Name of factor ``n`` (from 0)."""
        return self.name(f"G{n + 1}")


def _sum_width(width: int, other: int, terms: int) -> int:
    """Bits that hold every sum of ``terms`` products."""
    return (terms << (width + other - 2)).bit_length() + 1


def merged_images(split: Split, p: AcceleratorParameters) -> dict[int, RowImage]:
    """How each factor (from 0) is written for the merging."""
    uses = {0: Arrangement.FIRST}
    uses |= {n: Arrangement.ENTRIES for n in range(1, split.bond)}
    uses |= {n: Arrangement.SCALARS for n in range(split.bond, split.layer.order - 1)}
    uses[split.layer.order - 1] = Arrangement.LAST
    return {n: row_image(split.layer, split.number, n, use, p) for n, use in uses.items()}


class Merged:
    """Left and Right of one layer, in the layouts in which the plans read them.

    ``left`` has axes (p, u, k/), ``right`` (q, v/, k): its v along the lanes, and k padded with
    zero rows to a multiple of the lanes, unless ``padded_rank`` is false.

    ``banks`` are those of Left and of Right, ``spare`` rows of zeros follow Left.
    """

    def __init__(
        self,
        w: Workspace,
        split: Split,
        *,
        banks: tuple[int, int],
        spare: int = 0,
        padded_rank: bool = True,
    ):
        self.w, self.split = w, split
        formats = split.network.factor_formats(split.number)
        self.factor_width = max(fmt.decoded_width for fmt in formats)
        self._banks, self._spare, self._padded = banks, spare, padded_rank
        # Every load first: what is loaded next runs under the contractions.
        self._loaded = {
            n: w.load_image(image, **self._sizes(n, image.arrangement), **self._place(n))
            for n, image in merged_images(split, w.p).items()
        }

    def _place(self, n: int) -> dict[str, int]:
        """Where a factor goes that is all of Left, or all of Right."""
        if n == 0 and self.split.bond == 1:
            return {"bank": self._banks[0], "spare": self._spare}
        if n == self.split.layer.order - 1 == self.split.bond:
            return {"bank": self._banks[1]}
        outermost = n in (0, self.split.layer.order - 1)
        return {"bank": 2 if outermost else 3, "top": True}  # read together: not in one bank

    def _sizes(self, n: int, use: Arrangement) -> dict[str, int]:
        r, j, i, s = self.split.layer.factor_shapes[n]
        lanes, p = self.w.p.lanes, self.w.p
        return {
            Arrangement.FIRST: {"p": j, "u": i, "k_": padded(s, p) // lanes},
            Arrangement.ENTRIES: {"j": j, "i": i, "k": padded(s, p), "l_": padded(r, p) // lanes},
            Arrangement.SCALARS: {"l": s, "j": j, "i": i, "k_": padded(r, p) // lanes},
            Arrangement.LAST: {"q": j, "v_": i // lanes, "k": padded(r, p)},
        }[use]

    def _written(self, name: str, width: int, count: int) -> Written:
        kind = TensorClass.INTERMEDIATE
        bits = min(width, self.w.p.word_width)
        return self.w.written(self.split.name(name), kind, bits, count, fixed=True)

    def make(self, then: Callable[[], None] = lambda: None) -> None:
        """Emit the contractions that give ``left`` and ``right``.

        ``then`` emits loads that need not be there before: they run beside the contractions.
        """
        if self.split.bond > 1:
            self.left = self._merge_left()
            self._clear_spare()
            then()
            self.right = self._merge_right()
        else:
            self.right = self._merge_right()
            self.left = self._merge_left()
            self._clear_spare()
            then()

    def _clear_spare(self) -> None:
        if self._spare:
            left = self.w.region(self.left.block)
            self.w.clear(left.stop - self._spare, self._spare)

    def free(self, *, left: bool = False, right: bool = False) -> None:
        """Give them back."""
        self.w.free(*[one.block for one, yes in ((self.left, left), (self.right, right)) if yes])

    def _merge_left(self) -> Operand:
        w, split, lanes = self.w, self.split, self.w.p.lanes
        layer, fw = split.layer, self.factor_width
        name, width, current = split.factor(0), fw, self._loaded[0]
        for n in range(1, split.bond):
            r, j, i, s = layer.factor_shapes[n]
            p0, u0 = current.size("p"), current.size("u")
            bits = _sum_width(width, fw, r)
            last = n == split.bond - 1
            tensor = self._written("left" if last else f"left{n + 1}", bits, p0 * u0 * j * i * s)
            z = w.block(
                tensor.name,
                bank=self._banks[0] if last else None,
                spare=self._spare if last else 0,
                p=p0 * j,
                u=u0 * i,
                k_=padded(s, w.p) // lanes,
            )
            w.dot(
                Operand(current.renamed(p="p0", u="u0", k_="l/"), name, width),
                Operand(self._loaded[n], split.factor(n), fw),
                z.split("p", (("p0", p0), ("j", j))).split("u", (("u0", u0), ("i", i))),
                tensor,
                rows="u0" if u0 >= p0 else "p0",
                entries="k",
                summed=("l/",),
                macs=tensor.count * r,
            )
            w.free(current, self._loaded[n])
            name, width, current = tensor.name, tensor.width, z
        return Operand(current, name, width)

    def _merge_right(self) -> Operand:
        w, split, lanes = self.w, self.split, self.w.p.lanes
        layer, fw, end = split.layer, self.factor_width, split.layer.order - 1
        name, width, current = split.factor(end), fw, self._loaded[end]
        for n in range(end - 1, split.bond - 1, -1):
            r, j, i, s = layer.factor_shapes[n]
            q0, v0 = current.size("q"), current.size("v/")
            bits = _sum_width(width, fw, s)
            last = n == split.bond
            count = r * j * i * q0 * v0 * lanes
            tensor = self._written("right" if last else f"right{n + 1}", bits, count)
            rank = padded(r, w.p) if self._padded or not last else r
            bank = self._banks[1] if last else None
            z = w.block(tensor.name, bank=bank, q=j * q0, v_=i * v0, k=rank)
            w.outer(
                Operand(current.part("k", 0, s).renamed(q="q0", v_="v0/", k="l"), name, width),
                Operand(self._loaded[n], split.factor(n), fw),
                z.split("q", (("j", j), ("q0", q0))).split("v/", (("i", i), ("v0/", v0))),
                tensor,
                rows="k",
                summed=("l",),
                macs=count * s,
            )
            w.free(current, self._loaded[n])
            name, width, current = tensor.name, tensor.width, z
        return Operand(current, name, width)
