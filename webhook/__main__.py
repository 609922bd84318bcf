"""``python -m webhook`` is ``ckptguard``."""

import sys

from webhook.cli import main

if __name__ == "__main__":
    sys.exit(main())
