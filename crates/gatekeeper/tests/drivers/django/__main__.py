"""Django on psycopg 3 through the gatekeeper: `python tests/drivers/django`, environment as in harness/checks.py."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "harness"))

import django  # noqa: E402
from django.conf import settings  # noqa: E402

import checks  # noqa: E402


def database(**options):
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ["PGPASSWORD"],
        "NAME": os.environ["PGDATABASE"],
        # Not the server's, so that each new connection sets it, by set_config.
        "TIME_ZONE": "Europe/Berlin",
        **options,
    }


settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
    DATABASES={
        # As it is out of the box: a connection for each request, parameters bound by the client.
        "default": database(),
        # With what a server that is talked to directly allows: kept connections, parameters bound by the server,
        # prepared statements.
        "prepared": database(CONN_MAX_AGE=None, OPTIONS={"server_side_binding": True, "prepare_threshold": 1}),
        "serializable": database(OPTIONS={"isolation_level": 4}),
        "pooled": database(OPTIONS={"pool": {"min_size": 2, "max_size": 8}}),
        "wrong": database(PASSWORD="not the password"),
    },
)
django.setup()

# The modules register their checks in this order.
import sessions  # noqa: E402, F401
import mapped  # noqa: E402, F401

if __name__ == "__main__":
    checks.main()
