"""``python -m trainwright`` is ``trainwright``."""

import trainwright.cli.__main__ as _  # noqa: F401
