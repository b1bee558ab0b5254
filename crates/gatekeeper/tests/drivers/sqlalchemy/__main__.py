"""SQLAlchemy on psycopg 3 through the gatekeeper: `python tests/drivers/sqlalchemy`, environment as in harness/checks.py."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "harness"))

import checks  # noqa: E402

# The modules register their checks in this order.
import engine  # noqa: E402, F401
import mapped  # noqa: E402, F401

if __name__ == "__main__":
    checks.main()
