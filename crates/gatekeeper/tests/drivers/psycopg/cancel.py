"""Cancel requests: of a running statement, of one that waits, of one that is over; time-outs and kills."""

import threading

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from checks import CONNECTIONS, THROUGH_GATE, check, until, upstream


class Running(threading.Thread):
    """A statement running in a session of its own thread; `error` is what it ended with."""

    def __init__(self, session, statement):
        super().__init__(daemon=True)
        self.session, self.statement, self.error = session, statement, None

    def run(self):
        try:
            self.session.execute(self.statement)
        except psycopg.Error as error:
            self.error = error


def active(watcher, marker):
    return watcher.execute(
        "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s AND pid <> pg_backend_pid()",
        (f"%{marker}%",),
    ).fetchall()


@check("a running statement is cancelled, and its session lives on")
def running():
    with psycopg.connect(autocommit=True) as session, psycopg.connect(autocommit=True, **upstream()) as watcher:
        for round_number in range(3):
            marker = f"cancel-running-{round_number}"
            thread = Running(session, f"/* {marker} */ SELECT pg_sleep(600)")
            thread.start()
            until(lambda: active(watcher, marker), "the statement runs")
            session.cancel_safe()
            thread.join()
            assert isinstance(thread.error, errors.QueryCanceled), thread.error
            assert session.execute("SELECT 1").fetchone() == (1,)


@check("a statement cancelled in a transaction fails the transaction")
def in_transaction():
    with psycopg.connect(autocommit=True) as session, psycopg.connect(autocommit=True, **upstream()) as watcher:
        session.execute("BEGIN")
        session.execute("SELECT 1")
        thread = Running(session, "/* cancel-in-transaction */ SELECT pg_sleep(600)")
        thread.start()
        until(lambda: active(watcher, "cancel-in-transaction"), "the statement runs")
        session.cancel_safe()
        thread.join()
        assert isinstance(thread.error, errors.QueryCanceled), thread.error
        assert session.info.transaction_status == TransactionStatus.INERROR
        assert session.execute("COMMIT").statusmessage == "ROLLBACK"


def cancel_while_waiting(begin):
    """Occupies every server connection, cancels a statement that waits for one, and frees them again."""
    watcher = psycopg.connect(autocommit=True, **upstream())
    holders = [psycopg.connect() for _ in range(CONNECTIONS)]
    session = psycopg.connect(autocommit=True)
    for holder in holders:
        holder.execute("SELECT 1")
    if begin:
        session.execute("BEGIN")
    thread = Running(session, "/* cancel-waiting */ SELECT pg_sleep(600)")
    thread.start()

    def cancelled():
        # Through the gate the statement never reaches the server: nothing shows when it has begun to
        # wait. A cancel that comes before it does nothing, so cancel until one meets it.
        if THROUGH_GATE:
            assert not active(watcher, "cancel-waiting"), "the statement ran though every connection is held"
        session.cancel_safe()
        return not thread.is_alive()

    until(cancelled, "a cancel ends the waiting statement")
    assert isinstance(thread.error, errors.QueryCanceled), thread.error
    if begin:
        assert session.info.transaction_status == TransactionStatus.INERROR
        try:
            session.execute("SELECT 1")
        except errors.InFailedSqlTransaction:
            pass
        else:
            raise AssertionError("the transaction should have failed")
        assert session.execute("COMMIT").statusmessage == "ROLLBACK"
    for holder in holders:
        holder.commit()
    assert session.execute("SELECT 1").fetchone() == (1,)
    for connection in (session, watcher, *holders):
        connection.close()


@check("a waiting statement is cancelled without having run")
def waiting():
    cancel_while_waiting(begin=False)


@check("a waiting transaction is cancelled as a failed one")
def waiting_transaction():
    cancel_while_waiting(begin=True)


@check("a cancel that comes too late touches nobody")
def too_late():
    sessions = [psycopg.connect(autocommit=True) for _ in range(3 * CONNECTIONS)]
    for _ in range(5):
        for session in sessions:
            assert session.execute("SELECT 1").fetchone() == (1,)
            session.cancel_safe()
            # The statement right after may meet a late cancel of its own session, as with PostgreSQL itself;
            # every other session's must not.
        for session in sessions:
            try:
                session.execute("SELECT 2")
            except errors.QueryCanceled:
                pass
    busy, idle = sessions[0], sessions[1:]
    for _ in range(20):
        for session in idle:
            session.cancel_safe()
        assert busy.execute("SELECT 3").fetchone() == (3,)
    for session in sessions:
        session.close()


@check("statement_timeout ends a statement, not its session")
def statement_timeout():
    with psycopg.connect(autocommit=True) as session, psycopg.connect(autocommit=True) as other:
        session.execute("SET statement_timeout = '50ms'")
        for _ in range(CONNECTIONS):
            try:
                session.execute("SELECT pg_sleep(600)")
            except errors.QueryCanceled:
                assert other.execute("SELECT pg_sleep(0.1), 1").fetchone()[1] == 1
                continue
            raise AssertionError("the time-out was lost")
        assert session.execute("SELECT 1").fetchone() == (1,)


@check("a server connection that is killed ends its transaction with an error, and only that session's")
def killed():
    with (
        psycopg.connect(autocommit=True) as other,
        psycopg.connect(autocommit=True, **upstream()) as watcher,
    ):
        session = psycopg.connect()
        pid = session.execute("SELECT pg_backend_pid()").fetchone()[0]
        assert watcher.execute("SELECT pg_terminate_backend(%s)", (pid,)).fetchone() == (True,)
        until(lambda: not watcher.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall(), "it is gone")
        try:
            session.execute("SELECT 1")
        except psycopg.OperationalError:
            pass
        else:
            raise AssertionError("a transaction outlived its server connection")
        session.close()
        assert other.execute("SELECT 1").fetchone() == (1,)
        with psycopg.connect() as fresh:
            assert fresh.execute("SELECT 1").fetchone() == (1,)
