"""Small native kernels: C beside the Python that calls it, compiled at first use and kept.

``load(source)`` gives the library, or ``None`` where there is no compiler; every caller has a path
without it that yields the same bits. The compiler is what ``CC`` names, the wheel of ziglang, or
the system's. ``trainwright.support.native.cache`` keeps what is built, simulators of the
accelerator included.
"""

from trainwright.support.native.library import load, without

__all__ = ["load", "without"]
