"""``python -m trainwright`` is ``trainwright``."""

from trainwright.cli import main

raise SystemExit(main())
