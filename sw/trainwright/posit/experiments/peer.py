"""SoftPosit's C library, compiled from its sources, behind the operations that are measured."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from trainwright.posit.format import PositError, PositFormat
from trainwright.support.native import load

_DRIVER = Path(__file__).parent / "peers" / "softposit.c"


class SoftPosit:
    """Library compiled from ``folder``, like our kernels; posits of es = 2, codes in and out.

    ``folder`` is SoftPosit's own or a folder above it, such as the unpacked source distribution of
    the package softposit. Raises ``PositError`` if it is neither, or if there is no C compiler.
    """

    name = "SoftPosit"

    def __init__(self, folder: Path):
        headers = sorted(folder.glob("**/source/include/softposit.h"))
        if not headers:
            raise PositError(
                f"no SoftPosit in {folder}: unpack its sources there "
                "(pip download --no-deps --no-binary :all: softposit)"
            )
        root = headers[0].parents[2]
        platform = sorted(root.glob("build/*/platform.h"))
        sources = sorted(str(path) for path in (root / "source").glob("*.c"))
        if not platform:
            raise PositError(f"{root} lacks build/*/platform.h")
        options = ("-std=gnu11", f"-I{headers[0].parent}", f"-I{platform[0].parent}", *sources)
        library = load(_DRIVER, *options)
        if library is None:
            raise PositError("SoftPosit needs a C compiler: name one in CC")
        self._library = library

    def _call(self, name: str, a: Tensor, b: Tensor, size: int, fmt: PositFormat) -> Tensor:
        if fmt.es != 2:
            raise PositError(f"SoftPosit's widths are free for es = 2 only, not for {fmt}")
        out = torch.empty_like(a)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, out)]
        self._library[f"peer_{name}"](*pointers, ctypes.c_int64(size), ctypes.c_int64(fmt.n))
        return out

    @staticmethod
    def words(codes: Tensor, fmt: PositFormat) -> Tensor:
        """Shift codes to the top of 32 bits, where SoftPosit keeps them."""
        return (codes << (32 - fmt.n)).to(torch.int32)

    @staticmethod
    def codes(words: Tensor, fmt: PositFormat) -> Tensor:
        """Shift SoftPosit's words down to codes."""
        return (words.to(torch.int64) >> (32 - fmt.n)) & fmt.mask

    def element_wise(self, name: str, a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
        """Apply ``add`` or ``mul`` to words."""
        return self._call(name, a, b, a.numel(), fmt)

    def matmul(self, mode: str, a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
        """Multiply square matrices of words, ``sequential`` or ``quire``."""
        return self._call(mode, a, b, a.shape[0], fmt)
