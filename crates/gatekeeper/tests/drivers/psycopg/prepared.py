"""Prepared statements that outlive transactions and meet other sessions' statements of the same name."""

import psycopg
from psycopg import errors

from checks import CONNECTIONS, check


@check("one prepared statement over many transactions")
def many_transactions():
    with psycopg.connect() as connection:
        for number in range(10 * CONNECTIONS):
            row = connection.execute("SELECT %s::int + 1", (number,), prepare=True).fetchone()
            assert row == (number + 1,), row
            connection.commit() if number % 2 else connection.rollback()


@check("sessions whose statements share names, not texts, are not mixed up")
def same_names():
    sessions = [psycopg.connect(autocommit=True, prepare_threshold=0) for _ in range(3 * CONNECTIONS)]
    for _ in range(5):
        for index, session in enumerate(sessions):
            # Both become `_pg3_0` and `_pg3_1` in each session.
            assert session.execute(f"SELECT 'session {index} ' || %s::text", ("a",)).fetchone() == (f"session {index} a",)
            assert session.execute(f"SELECT {index} * %s::int", (10,)).fetchone() == (index * 10,)
    for session in sessions:
        session.close()


@check("one text prepared in many sessions")
def same_text():
    sessions = [psycopg.connect(autocommit=True, prepare_threshold=0) for _ in range(3 * CONNECTIONS)]
    for number in range(5):
        for index, session in enumerate(sessions):
            assert session.execute("SELECT %s::int, %s::int", (index, number)).fetchone() == (index, number)
    for session in sessions:
        session.close()


@check("a session that forgets and prepares again")
def eviction():
    with psycopg.connect(autocommit=True, prepare_threshold=0) as connection:
        connection.prepared_max = 3
        for step in range(60):
            kind = step % 7
            assert connection.execute(f"SELECT {kind} + %s::int", (step,)).fetchone() == (kind + step,)


@check("a statement that fails to parse is not prepared, and may be right the next time")
def failed_parse():
    with psycopg.connect(autocommit=True, prepare_threshold=0) as connection:
        for _ in range(2 * CONNECTIONS):
            try:
                connection.execute("SELECT a FROM made_later WHERE a = %s", (1,))
            except errors.UndefinedTable:
                pass
            else:
                raise AssertionError("the table should not exist yet")
        connection.execute("CREATE TABLE made_later (a int)")
        for _ in range(2 * CONNECTIONS):
            assert connection.execute("SELECT a FROM made_later WHERE a = %s", (1,)).fetchall() == []
        connection.execute("DROP TABLE made_later")


@check("an error of a prepared statement leaves it prepared")
def failed_execute():
    with psycopg.connect(prepare_threshold=0) as connection:
        for divisor in (1, 0, 2, 0, 3, 0, 4):
            try:
                row = connection.execute("SELECT 12 / %s::int", (divisor,)).fetchone()
                assert row == (12 // divisor,)
                connection.commit()
            except errors.DivisionByZero:
                connection.rollback()


@check("DEALLOCATE ALL and DISCARD ALL forget this session's statements only")
def deallocate_all():
    with (
        psycopg.connect(autocommit=True) as one,
        psycopg.connect(autocommit=True) as other,
    ):
        for forget in (b"DEALLOCATE ALL", b"DISCARD ALL"):
            for session in (one, other):
                result = session.pgconn.prepare(b"mine", b"SELECT $1::int")
                assert result.status == psycopg.pq.ExecStatus.COMMAND_OK, result.error_message
            assert one.pgconn.exec_(forget).command_status == forget
            for _ in range(CONNECTIONS):
                gone = one.pgconn.exec_prepared(b"mine", [b"1"])
                assert gone.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"26000", gone.error_message
                there = other.pgconn.exec_prepared(b"mine", [b"1"])
                assert there.get_value(0, 0) == b"1", there.error_message
            assert other.pgconn.exec_(b"DEALLOCATE mine").command_status == b"DEALLOCATE"


@check("a name prepared twice is the server's error")
def duplicate_name():
    with psycopg.connect(autocommit=True) as connection:
        pgconn = connection.pgconn
        assert pgconn.prepare(b"twice", b"SELECT 1").status == psycopg.pq.ExecStatus.COMMAND_OK
        again = pgconn.prepare(b"twice", b"SELECT 2")
        assert again.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"42P05", again.error_message
        assert pgconn.exec_prepared(b"twice", []).get_value(0, 0) == b"1"
        assert pgconn.exec_(b"DEALLOCATE twice").command_status == b"DEALLOCATE"
        assert pgconn.prepare(b"twice", b"SELECT 2").status == psycopg.pq.ExecStatus.COMMAND_OK
        assert pgconn.exec_prepared(b"twice", []).get_value(0, 0) == b"2"


@check("a prepared statement can be described in a later transaction")
def describe():
    with psycopg.connect(autocommit=True) as connection, psycopg.connect(autocommit=True) as other:
        pgconn = connection.pgconn
        for name in (b"", b"named"):
            assert pgconn.prepare(name, b"SELECT $1::text AS a, $2::int8 AS b").status == psycopg.pq.ExecStatus.COMMAND_OK
            for _ in range(CONNECTIONS):
                other.execute("SELECT 1")
                described = pgconn.describe_prepared(name)
                assert described.nparams == 2 and described.nfields == 2, described.error_message
                assert [described.ftype(0), described.ftype(1)] == [25, 20]
                assert [described.param_type(0), described.param_type(1)] == [25, 20]
                row = pgconn.exec_prepared(name, [b"x", b"7"])
                assert (row.get_value(0, 0), row.get_value(0, 1)) == (b"x", b"7"), row.error_message


@check("an SQL-level PREPARE belongs to its session")
def sql_prepare():
    with psycopg.connect(autocommit=True) as one, psycopg.connect(autocommit=True) as other:
        one.execute("PREPARE plain (int) AS SELECT $1 * 2")
        for number in range(2 * CONNECTIONS):
            assert one.execute(f"EXECUTE plain ({number})").fetchone() == (2 * number,)
            try:
                other.execute("EXECUTE plain (1)")
            except errors.InvalidSqlStatementName:
                continue
            raise AssertionError("the other session saw the statement")
        one.execute("DEALLOCATE plain")
