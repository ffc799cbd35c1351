"""`python -m spark_eos.admin`: the same as the command `eos-kafka`."""

import sys

from spark_eos.admin.command import main

if __name__ == "__main__":
    sys.exit(main())
