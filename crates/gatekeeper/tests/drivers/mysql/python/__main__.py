"""Python's synchronous drivers through the gatekeeper: `python tests/drivers/mysql/python pymysql` (or MySQLdb).

The environment is as in harness/checks.py, but MYSQL_HOST, MYSQL_TCP_PORT, MYSQL_USER, MYSQL_PWD and MYSQL_DATABASE say
where to connect, and MYSQL_TLS_CA names the authority where TLS is asked for.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "harness"))

import checks  # noqa: E402

# The modules register their checks in this order.
import statements  # noqa: E402, F401
import transactions  # noqa: E402, F401
import sessions  # noqa: E402, F401

if __name__ == "__main__":
    checks.main()
