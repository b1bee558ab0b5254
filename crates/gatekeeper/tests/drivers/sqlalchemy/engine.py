"""SQLAlchemy's engine: its pool, statements in every form, isolation, COPY, cancel."""

import os
import threading

import psycopg
from sqlalchemy import create_engine, exc, text
from sqlalchemy.pool import NullPool

from checks import CONNECTIONS, THROUGH_GATE, check, until, upstream


def engine(**options):
    """Where to connect comes from libpq's variables."""
    return create_engine("postgresql+psycopg://", **options)


def fails(call, cause):
    try:
        call()
    except exc.DBAPIError as error:
        assert isinstance(error.orig, cause), error
        return error
    raise AssertionError(f"{cause.__name__} was due")


@check("a right password is let in, a wrong one is refused")
def login():
    with engine().connect() as connection:
        assert connection.scalar(text("SELECT current_user")) == os.environ["PGUSER"]
    wrong = engine(connect_args={"password": "not the password"})
    error = fails(wrong.connect, psycopg.OperationalError)
    assert "password authentication failed" in str(error)


@check("more sessions than server connections, each with its own settings")
def sessions():
    pool = engine(pool_size=3 * CONNECTIONS)
    opened = [pool.connect().execution_options(isolation_level="AUTOCOMMIT") for _ in range(3 * CONNECTIONS)]
    for index, connection in enumerate(opened):
        connection.execute(text(f"SET statement_timeout = {1000 + index}"))
    pids = set()
    for _ in range(3):
        for index, connection in enumerate(opened):
            assert connection.scalar(text("SHOW statement_timeout")) in (f"{1000 + index}ms", f"{(1000 + index) // 1000}s")
            pids.add(connection.scalar(text("SELECT pg_backend_pid()")))
    assert len(pids) <= (CONNECTIONS if THROUGH_GATE else 3 * CONNECTIONS), pids
    for connection in opened:
        connection.close()
    pool.dispose()


@check("a pool that asks each connection whether it lives, and one that keeps none")
def pools():
    asking = engine(pool_pre_ping=True)
    for options in ({"pool_pre_ping": True}, {"poolclass": NullPool}):
        pool = engine(**options)
        for number in range(2 * CONNECTIONS):
            with pool.connect() as connection:
                assert connection.scalar(text("SELECT :n"), {"n": number}) == number
    with psycopg.connect(autocommit=True, **upstream()) as watcher:
        with asking.connect() as connection:
            pid = connection.scalar(text("SELECT pg_backend_pid()"))
        assert watcher.execute("SELECT pg_terminate_backend(%s)", (pid,)).fetchone() == (True,)
        until(lambda: not watcher.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall(), "it is gone")
    with asking.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1


@check("statements that the driver prepares by itself")
def prepared():
    preparing = engine(pool_size=3 * CONNECTIONS, connect_args={"prepare_threshold": 1})
    opened = [preparing.connect() for _ in range(3 * CONNECTIONS)]
    for number in range(6):
        for connection in opened:
            assert connection.scalar(text("SELECT :n + 1"), {"n": number}) == number + 1
            connection.rollback()
    for connection in opened:
        connection.close()


@check("isolation levels and read-only transactions")
def isolation():
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        for read_only in (True, False):
            options = {"isolation_level": level, "postgresql_readonly": read_only, "postgresql_deferrable": read_only}
            with engine().connect().execution_options(**options) as connection:
                assert connection.scalar(text("SHOW transaction_isolation")) == level.lower()
                assert connection.scalar(text("SHOW transaction_read_only")) == ("on" if read_only else "off")
                assert connection.scalar(text("SHOW transaction_deferrable")) == ("on" if read_only else "off")
    with engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        first = connection.scalar(text("SELECT txid_current()"))
        assert connection.scalar(text("SELECT txid_current()")) > first


@check("an error ends its transaction, and the session lives on")
def errors():
    with engine().connect() as connection:
        for _ in range(2 * CONNECTIONS):
            fails(lambda: connection.execute(text("SELECT 1/:n"), {"n": 0}), psycopg.errors.DivisionByZero)
            fails(lambda: connection.execute(text("SELECT 1")), psycopg.errors.InFailedSqlTransaction)
            connection.rollback()
            assert connection.scalar(text("SELECT 1")) == 1
            connection.rollback()


@check("a server-side cursor streams a large result")
def cursor():
    with engine().connect().execution_options(yield_per=500) as connection:
        rows = connection.execute(text("SELECT n, repeat('x', 1000) FROM generate_series(1, 20000) n"))
        assert sum(len(part) for part in rows.partitions()) == 20000
        assert connection.scalar(text("SELECT 1")) == 1


@check("COPY by the driver's own cursor, both ways")
def copying():
    with engine().begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS alchemy_copied"))
        connection.execute(text("CREATE TABLE alchemy_copied (id int, name text)"))
        cursor = connection.connection.cursor()
        with cursor.copy("COPY alchemy_copied FROM STDIN") as into:
            for number in range(20000):
                into.write_row((number, f"name {number}"))
        with cursor.copy("COPY alchemy_copied TO STDOUT") as out:
            assert sum(1 for _ in out.rows()) == 20000
        assert connection.scalar(text("SELECT sum(id) FROM alchemy_copied")) == 20000 * 19999 // 2
        connection.execute(text("DROP TABLE alchemy_copied"))


@check("a running statement is cancelled, and its connection goes on")
def cancel():
    with engine().connect() as connection, psycopg.connect(autocommit=True, **upstream()) as watcher:
        ended = []

        def run():
            try:
                connection.execute(text("SELECT 'alchemy-cancel', pg_sleep(600)"))
            except exc.DBAPIError as error:
                ended.append(error.orig)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        until(lambda: watcher.execute("SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND pid <> "
                                      "pg_backend_pid() AND query LIKE '%alchemy-cancel%'").fetchall(), "it runs")
        connection.connection.driver_connection.cancel_safe()
        thread.join()
        assert isinstance(ended[0], psycopg.errors.QueryCanceled), ended
        connection.rollback()
        assert connection.scalar(text("SELECT 1")) == 1


@check("two-phase commit")
def two_phase():
    with engine().connect() as connection:
        connection.execute(text("DROP TABLE IF EXISTS alchemy_phases"))
        connection.execute(text("CREATE TABLE alchemy_phases (a int)"))
        connection.commit()
        for number in range(2):
            transaction = connection.begin_twophase()
            connection.execute(text("INSERT INTO alchemy_phases VALUES (:n)"), {"n": number})
            transaction.prepare()
            transaction.commit() if number else transaction.rollback()
        assert connection.scalars(text("SELECT a FROM alchemy_phases")).all() == [1]
        connection.execute(text("DROP TABLE alchemy_phases"))
        connection.commit()
