"""psycopg 3 through the gatekeeper: `python tests/drivers/psycopg`, environment as in harness/checks.py."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "harness"))

import checks  # noqa: E402

# The modules register their checks in this order.
import login  # noqa: E402, F401
import transactions  # noqa: E402, F401
import prepared  # noqa: E402, F401
import pipelines  # noqa: E402, F401
import cancel  # noqa: E402, F401
import copying  # noqa: E402, F401
import settings  # noqa: E402, F401
import pinning  # noqa: E402, F401
import sizes  # noqa: E402, F401

if __name__ == "__main__":
    checks.main()
