"""``convert``: codes, tensors and modules from one format to another."""

from collections.abc import Mapping
from typing import Any, TypeVar, overload

from torch import Tensor, nn

from trainwright.posit import codes
from trainwright.posit.format import PositFormat
from trainwright.posit.modules import Precision, convert_module
from trainwright.posit.tensor import PositTensor
from trainwright.support.text import amount

M = TypeVar("M", bound=nn.Module)


@overload
def convert(what: M, formats: Precision | Mapping[str, Precision], /) -> M: ...
@overload
def convert(what: PositTensor, fmt: PositFormat, /) -> PositTensor: ...
@overload
def convert(what: Tensor, source: PositFormat, fmt: PositFormat, /) -> Tensor: ...
def convert(what: Any, *formats: Any) -> Any:
    """Convert codes, a posit tensor or a module to another format, rounding once.

    - ``convert(module, fmt)``, or a mapping of layers to formats: its parameters become posits
      (``trainwright.posit.modules.convert_module``).
    - ``convert(posits, fmt)`` for a ``PositTensor``: ``posits.to(fmt)``.
    - ``convert(codes, source, fmt)``: integer codes of one format to those of another.

    Raises ``TypeError`` for anything else.
    """
    if isinstance(what, nn.Module) and len(formats) == 1:
        return convert_module(what, formats[0])
    if isinstance(what, PositTensor) and len(formats) == 1:
        return what.to(formats[0])
    if isinstance(what, Tensor) and len(formats) == 2 and not isinstance(what, PositTensor):
        return codes.convert(what, *formats)
    raise TypeError(
        "convert takes (module, fmt), (posit tensor, fmt) or (codes, source, fmt), not "
        f"{type(what).__name__} and {amount(len(formats), 'format')}"
    )
