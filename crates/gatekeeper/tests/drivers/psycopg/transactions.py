"""Transactions: isolation, savepoints, errors, the deferred BEGIN's visible side, two-phase commit."""

import psycopg
from psycopg import IsolationLevel, errors
from psycopg.pq import TransactionStatus

from checks import CONNECTIONS, check, together

IDLE, INTRANS, INERROR = TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR


def tag(connection, statement):
    return connection.execute(statement).statusmessage


def value(connection, statement):
    return connection.execute(statement).fetchone()[0]


def status(connection):
    return connection.info.transaction_status


def fails(connection, statement, expected):
    try:
        connection.execute(statement)
    except expected:
        return
    raise AssertionError(f"{statement!r} did not fail with {expected.__name__}")


@check("transactions with every isolation option")
def isolation():
    with psycopg.connect() as connection:
        for level, name in ((IsolationLevel.READ_COMMITTED, "read committed"),
                            (IsolationLevel.REPEATABLE_READ, "repeatable read"),
                            (IsolationLevel.SERIALIZABLE, "serializable")):
            for read_only in (False, True):
                for deferrable in (False, True):
                    connection.isolation_level = level
                    connection.read_only = read_only
                    connection.deferrable = deferrable
                    assert value(connection, "SHOW transaction_isolation") == name
                    assert value(connection, "SHOW transaction_read_only") == ("on" if read_only else "off")
                    assert value(connection, "SHOW transaction_deferrable") == ("on" if deferrable else "off")
                    connection.commit()
        connection.isolation_level = connection.read_only = connection.deferrable = None
        assert value(connection, "SHOW transaction_isolation") == "read committed"


@check("a read-only transaction refuses a write, and the session lives on")
def read_only():
    with psycopg.connect(autocommit=True) as connection:
        assert tag(connection, "BEGIN TRANSACTION READ ONLY") == "BEGIN"
        fails(connection, "CREATE TABLE never (a int)", errors.ReadOnlySqlTransaction)
        assert status(connection) == INERROR
        assert tag(connection, "ROLLBACK") == "ROLLBACK"
        assert value(connection, "SELECT 1") == 1


@check("nested transactions are savepoints")
def nested():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS nested; CREATE TABLE nested (a int)")
        with connection.transaction():
            with connection.transaction() as inner:
                connection.execute("INSERT INTO nested VALUES (1)")
                raise psycopg.Rollback(inner)
            with connection.transaction():
                connection.execute("INSERT INTO nested VALUES (2)")
                try:
                    with connection.transaction():
                        connection.execute("INSERT INTO nested VALUES (3)")
                        connection.execute("SELECT 1/0")
                except errors.DivisionByZero:
                    pass
                connection.execute("INSERT INTO nested VALUES (4)")
        rows = connection.execute("SELECT a FROM nested ORDER BY a").fetchall()
        assert rows == [(2,), (4,)], rows
        connection.execute("DROP TABLE nested")


@check("an error makes a failed transaction until it ends")
def failed():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("BEGIN")
        fails(connection, "SELECT 1/0", errors.DivisionByZero)
        assert status(connection) == INERROR
        fails(connection, "SELECT 1", errors.InFailedSqlTransaction)
        fails(connection, "SELECT 2", errors.InFailedSqlTransaction)
        assert tag(connection, "ROLLBACK") == "ROLLBACK"
        assert status(connection) == IDLE
        assert value(connection, "SELECT 3") == 3


@check("COMMIT of a failed transaction rolls back and says so")
def commit_of_failed():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("BEGIN")
        fails(connection, "SELECT * FROM no_such_table", errors.UndefinedTable)
        assert tag(connection, "COMMIT") == "ROLLBACK"
        assert status(connection) == IDLE


@check("an empty transaction has the tags and states of a real one")
def empty():
    with psycopg.connect(autocommit=True) as connection:
        for begin, begun in (("BEGIN", "BEGIN"), ("begin work", "BEGIN"), ("BEGIN;", "BEGIN"),
                             ("START TRANSACTION", "START TRANSACTION"),
                             ("/* c */ BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE -- x", "BEGIN"),
                             ("start transaction isolation level repeatable read read write", "START TRANSACTION")):
            for end, ended in (("COMMIT", "COMMIT"), ("END", "COMMIT"), ("ROLLBACK", "ROLLBACK"), ("ABORT;", "ROLLBACK")):
                assert tag(connection, begin) == begun, begin
                assert status(connection) == INTRANS, begin
                assert tag(connection, end) == ended, end
                assert status(connection) == IDLE, end


@check("savepoints and SET before the first statement take effect with it")
def pending_prefix():
    with psycopg.connect(autocommit=True) as connection:
        before = value(connection, "SHOW statement_timeout")
        assert tag(connection, "BEGIN") == "BEGIN"
        assert tag(connection, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE") == "SET"
        assert tag(connection, "SET LOCAL statement_timeout = '54321ms'") == "SET"
        assert tag(connection, "SAVEPOINT one") == "SAVEPOINT"
        assert tag(connection, "SAVEPOINT two") == "SAVEPOINT"
        assert tag(connection, "ROLLBACK TO SAVEPOINT one") == "ROLLBACK"
        assert tag(connection, "RELEASE SAVEPOINT one") == "RELEASE"
        assert status(connection) == INTRANS
        assert value(connection, "SHOW transaction_isolation") == "serializable"
        assert value(connection, "SHOW statement_timeout") == "54321ms"
        fails(connection, "ROLLBACK TO SAVEPOINT two", errors.InvalidSavepointSpecification)
        assert tag(connection, "ROLLBACK") == "ROLLBACK"
        assert value(connection, "SHOW statement_timeout") == before


@check("an error after a pending savepoint is undone by ROLLBACK TO it")
def rollback_to_pending_savepoint():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("SAVEPOINT before")
        fails(connection, "SELECT 1/0", errors.DivisionByZero)
        assert status(connection) == INERROR
        assert tag(connection, "ROLLBACK TO before") == "ROLLBACK"
        assert status(connection) == INTRANS
        assert value(connection, "SELECT 1") == 1
        assert tag(connection, "COMMIT") == "COMMIT"


@check("an unknown savepoint before the first statement fails the transaction")
def unknown_savepoint():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("BEGIN")
        fails(connection, "RELEASE SAVEPOINT never_made", errors.InvalidSavepointSpecification)
        assert status(connection) == INERROR
        assert tag(connection, "COMMIT") == "ROLLBACK"


@check("BEGIN in a transaction, and COMMIT outside one, warn")
def warnings():
    with psycopg.connect(autocommit=True) as connection:
        notices = []
        connection.add_notice_handler(lambda diagnostic: notices.append(diagnostic.sqlstate))
        assert tag(connection, "COMMIT") == "COMMIT"
        assert tag(connection, "ROLLBACK") == "ROLLBACK"
        assert notices == ["25P01", "25P01"], notices
        connection.execute("BEGIN")
        assert tag(connection, "BEGIN") == "BEGIN"
        assert notices[2:] == ["25001"], notices
        assert value(connection, "SELECT 1") == 1
        assert tag(connection, "COMMIT") == "COMMIT"


@check("COMMIT AND CHAIN starts the next transaction")
def chain():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert value(connection, "SELECT 1") == 1
        assert tag(connection, "COMMIT AND CHAIN") == "COMMIT"
        assert status(connection) == INTRANS
        assert value(connection, "SHOW transaction_isolation") == "repeatable read"
        assert tag(connection, "ROLLBACK AND CHAIN") == "ROLLBACK"
        assert status(connection) == INTRANS
        assert tag(connection, "ROLLBACK") == "ROLLBACK"
        assert status(connection) == IDLE


@check("several statements in one message are one implicit transaction")
def several_statements():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS several; CREATE TABLE several (a int)")
        fails(connection, "INSERT INTO several VALUES (1); SELECT 1/0", errors.DivisionByZero)
        assert value(connection, "SELECT count(*) FROM several") == 0
        cursor = connection.execute("BEGIN; INSERT INTO several VALUES (2); COMMIT; INSERT INTO several VALUES (3); SELECT 4")
        tags = [cursor.statusmessage]
        while cursor.nextset():
            tags.append(cursor.statusmessage)
        assert tags == ["BEGIN", "INSERT 0 1", "COMMIT", "INSERT 0 1", "SELECT 1"], tags
        assert status(connection) == IDLE
        assert connection.execute("SELECT 1; BEGIN").nextset()
        assert status(connection) == INTRANS
        connection.execute("ROLLBACK; DROP TABLE several")


@check("what is not committed is seen by its own session only")
def visibility():
    with psycopg.connect(autocommit=True) as one, psycopg.connect(autocommit=True) as other:
        one.execute("DROP TABLE IF EXISTS visible; CREATE TABLE visible (a int)")
        with one.transaction():
            one.execute("INSERT INTO visible VALUES (1)")
            assert value(one, "SELECT count(*) FROM visible") == 1
            assert value(other, "SELECT count(*) FROM visible") == 0
        assert value(other, "SELECT count(*) FROM visible") == 1
        one.execute("DROP TABLE visible")


@check("closing in the middle of a transaction rolls it back")
def close_rolls_back():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS closed; CREATE TABLE closed (a int)")
        for _ in range(2 * CONNECTIONS):
            leaving = psycopg.connect(autocommit=True)
            leaving.execute("BEGIN")
            leaving.execute("INSERT INTO closed VALUES (1)")
            leaving.close()
        # The lock is had only when every transaction that was left has been rolled back.
        connection.execute("BEGIN; LOCK TABLE closed IN ACCESS EXCLUSIVE MODE")
        assert value(connection, "SELECT count(*) FROM closed") == 0
        connection.execute("COMMIT; DROP TABLE closed")


@check("two-phase commit: prepared in one session, ended in another")
def two_phase():
    with psycopg.connect() as one:
        one.execute("DROP TABLE IF EXISTS phases")
        one.execute("CREATE TABLE phases (a int)")
        one.commit()
        for index, end in enumerate(("commit", "rollback")):
            xid = one.xid(7, f"transfer-{index}", "branch")
            one.tpc_begin(xid)
            one.execute("INSERT INTO phases VALUES (%s)", (index,))
            one.tpc_prepare()
            with psycopg.connect() as other:
                found = [known for known in other.tpc_recover() if known.gtrid == f"transfer-{index}"]
                assert len(found) == 1, found
                other.rollback()
                (other.tpc_commit if end == "commit" else other.tpc_rollback)(found[0])
            one.close()
            one = psycopg.connect()
        assert one.execute("SELECT a FROM phases").fetchall() == [(0,)]
        one.execute("DROP TABLE phases")
        one.commit()


@check("many clients' transfers over few server connections keep the sum")
def transfers():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS accounts; CREATE TABLE accounts (id int PRIMARY KEY, balance int)")
        connection.execute("INSERT INTO accounts SELECT id, 1000 FROM generate_series(1, 10) id")

    def transfer(seed):
        with psycopg.connect() as mine:
            for step in range(20):
                low, high = sorted(((seed + step) % 10 + 1, (seed * 3 + step * 7 + 1) % 10 + 1))
                mine.execute("SELECT 1 FROM accounts WHERE id IN (%s, %s) ORDER BY id FOR UPDATE", (low, high))
                mine.execute("UPDATE accounts SET balance = balance - 1 WHERE id = %s", (low,))
                mine.execute("UPDATE accounts SET balance = balance + 1 WHERE id = %s", (high,))
                mine.commit() if step % 5 else mine.rollback()

    together(8 * CONNECTIONS, transfer)
    with psycopg.connect(autocommit=True) as connection:
        assert value(connection, "SELECT sum(balance) FROM accounts") == 10000
        connection.execute("DROP TABLE accounts")
