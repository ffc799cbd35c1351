"""Let `python -m spark_eos.admin` do what the command `eos-kafka` does."""

import sys

from spark_eos.admin.command import main

if __name__ == "__main__":
    sys.exit(main())
