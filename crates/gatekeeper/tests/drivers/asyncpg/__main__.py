"""asyncpg through the gatekeeper: `python tests/drivers/asyncpg`, environment as in harness/checks.py.

asyncpg speaks the extended protocol throughout: named statements by default, Flush where it pipelines, binary
results, and introspection of types by large catalog queries of its own.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "harness"))

import checks  # noqa: E402

# The modules register their checks in this order.
import statements  # noqa: E402, F401
import transfers  # noqa: E402, F401
import pools  # noqa: E402, F401

if __name__ == "__main__":
    checks.main()
