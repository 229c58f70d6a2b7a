"""``python -m trainwright.cli`` is ``trainwright``."""

import sys

from trainwright.cli.core import main

sys.exit(main())
