"""``python -m ttforge.cli`` is ``ttforge``."""

import sys

from ttforge.cli.core import main

sys.exit(main())
