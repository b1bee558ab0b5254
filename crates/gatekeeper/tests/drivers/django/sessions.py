"""Logins, settings of sessions, errors, COPY, cancel."""

import os
import threading

import psycopg
from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.utils import ProgrammingError

from checks import CONNECTIONS, check, until, upstream
from django_checks import ALIASES, fails, value


@check("every kind of connection logs in; a wrong password is refused")
def login():
    for alias in ALIASES:
        assert value(alias, "SELECT current_user::text") == os.environ["PGUSER"]
    error = fails(lambda: value("wrong", "SELECT 1"), OperationalError, psycopg.OperationalError)
    assert "password authentication failed" in str(error)


@check("the isolation level that the settings ask for, the time zone, and the encoding")
def settings_of_a_session():
    for _ in range(2 * CONNECTIONS):
        with transaction.atomic(using="serializable"):
            assert value("serializable", "SHOW transaction_isolation") == "serializable"
        with transaction.atomic(using="default"):
            assert value("default", "SHOW transaction_isolation") == "read committed"
        assert value("default", "SHOW timezone") == value("prepared", "SHOW timezone") == "Europe/Berlin"
        connections.close_all()


@check("an error outside a transaction leaves the connection usable, one inside fails it")
def errors():
    for alias in ALIASES:
        for number in range(2 * CONNECTIONS):
            fails(lambda: value(alias, "SELECT 1/%s", 0), DatabaseError, psycopg.errors.DivisionByZero)
            fails(lambda: value(alias, "SELECT no_such_column"), ProgrammingError, psycopg.errors.UndefinedColumn)
            assert value(alias, "SELECT %s::int", number) == number
        transaction.set_autocommit(False, using=alias)
        fails(lambda: value(alias, "SELECT 1/0"), DatabaseError, psycopg.errors.DivisionByZero)
        fails(lambda: value(alias, "SELECT 1"), DatabaseError, psycopg.errors.InFailedSqlTransaction)
        transaction.rollback(using=alias)
        transaction.set_autocommit(True, using=alias)
        assert value(alias, "SELECT 1") == 1


@check("COPY by the driver's own cursor, both ways")
def copying():
    with transaction.atomic(), connections["default"].cursor() as cursor:
        cursor.execute("CREATE TABLE django_copied (id int, name text)")
        with cursor.copy("COPY django_copied FROM STDIN") as into:
            for number in range(10000):
                into.write_row((number, f"name {number}"))
        with cursor.copy("COPY django_copied TO STDOUT") as out:
            assert sum(1 for _ in out.rows()) == 10000
        cursor.execute("DROP TABLE django_copied")


@check("a running statement is cancelled, and its connection goes on")
def cancel():
    value("default", "SELECT 1")
    driver = connections["default"].connection
    marker = "django-cancel"
    with psycopg.connect(autocommit=True, **upstream()) as watcher:
        running = ("SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() "
                   f"AND query LIKE '%{marker}%'")

        def canceller():
            until(lambda: watcher.execute(running).fetchall(), "the statement runs")
            driver.cancel_safe()

        thread = threading.Thread(target=canceller, daemon=True)
        thread.start()
        fails(lambda: value("default", f"SELECT '{marker}', pg_sleep(600)"), OperationalError, psycopg.errors.QueryCanceled)
        thread.join()
    assert value("default", "SELECT 1") == 1
