"""What the checks of PyMySQL and mysqlclient share: connections, one value, errors by their number."""

import importlib
import os
import sys

driver = importlib.import_module(sys.argv[1])
cursors = importlib.import_module(f"{sys.argv[1]}.cursors")
CLIENT = importlib.import_module(f"{sys.argv[1]}.constants.CLIENT")


def connect(**options):
    """A session, with autocommit off as these drivers set it."""
    settings = {
        "host": os.environ["MYSQL_HOST"],
        "port": int(os.environ["MYSQL_TCP_PORT"]),
        "user": os.environ["MYSQL_USER"],
        "password": os.environ["MYSQL_PWD"],
        "database": os.environ["MYSQL_DATABASE"],
        "charset": "utf8mb4",
    }
    if "MYSQL_TLS_CA" in os.environ:
        settings["ssl"] = {"ca": os.environ["MYSQL_TLS_CA"]}
    return driver.connect(**{**settings, **options})


def upstream():
    """A session with the server itself."""
    port = int(os.environ.get("UPSTREAM_PORT", os.environ["MYSQL_TCP_PORT"]))
    return driver.connect(
        host="127.0.0.1", port=port, user=os.environ["MYSQL_USER"], password=os.environ["MYSQL_PWD"], autocommit=True
    )


def run(connection, sql, parameters=None):
    """Runs a statement, and returns its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def value(connection, sql, parameters=None):
    return run(connection, sql, parameters)[0][0]


def fails(call, number, kind=None):
    """Expects an error of this number, and of this class of the DB-API."""
    try:
        call()
    except driver.Error as error:
        assert error.args[0] == number, error
        assert kind is None or isinstance(error, kind), type(error)
        return error
    raise AssertionError(f"error {number} was due")


def running(watcher, marker):
    """The ids of the server's threads whose statement has this marker."""
    sql = "SELECT id FROM information_schema.processlist WHERE info LIKE %s AND id <> CONNECTION_ID()"
    return [row[0] for row in run(watcher, sql, (f"%{marker}%",))]
