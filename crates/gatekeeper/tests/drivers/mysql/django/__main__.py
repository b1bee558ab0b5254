"""Django on mysqlclient through the gatekeeper, environment as in ../python/__main__.py."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "harness"))

import django  # noqa: E402
from django.conf import settings  # noqa: E402

from checks import CONNECTIONS, check, main  # noqa: E402


def database(**options):
    tls = {"ssl": {"ca": os.environ["MYSQL_TLS_CA"]}} if "MYSQL_TLS_CA" in os.environ else {}
    return {
        "ENGINE": "django.db.backends.mysql",
        "HOST": os.environ["MYSQL_HOST"],
        "PORT": os.environ["MYSQL_TCP_PORT"],
        "USER": os.environ["MYSQL_USER"],
        "PASSWORD": os.environ["MYSQL_PWD"],
        "NAME": os.environ["MYSQL_DATABASE"],
        **options,
        "OPTIONS": {**tls, **options.get("OPTIONS", {})},
    }


settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
    DATABASES={
        "default": database(),
        "kept": database(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True),
        "repeatable": database(OPTIONS={"isolation_level": "repeatable read"}),
        "wrong": database(PASSWORD="not the password"),
    },
)
django.setup()

from django.db import OperationalError  # noqa: E402
from django.db.utils import ProgrammingError  # noqa: E402

from django_checks import ALIASES, fails, value  # noqa: E402


@check("every kind of connection logs in; a wrong password is refused")
def login():
    for alias in ALIASES:
        print(value(alias, "SELECT CURRENT_USER()"), value(alias, "SELECT @@tx_isolation"))
    assert fails(lambda: value("wrong", "SELECT 1"), OperationalError).args[0] == 1045


@check("an error leaves the connection usable")
def errors():
    for alias in ALIASES:
        for number in range(CONNECTIONS):
            fails(lambda: value(alias, "SELECT no_such_column"), OperationalError)
            fails(lambda: value(alias, "SELEC"), ProgrammingError)
            assert value(alias, "SELECT %s", number) == number


if __name__ == "__main__":
    main()
