"""``python -m trainwright.cli`` is ``trainwright``."""

import sys

from trainwright.cli import main

sys.exit(main())
