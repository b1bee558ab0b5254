"""What can't be shared pins the session to its server connection: it works, and nobody else sees it."""

import psycopg
from psycopg import errors

from checks import CONNECTIONS, check, until


def backend(session):
    return session.execute("SELECT pg_backend_pid()").fetchone()[0]


def pins(session, statement):
    """Runs a statement that pins. The pin of a session that has just left may still be counted: try again then."""

    def taken():
        try:
            return session.execute(statement)
        except errors.TooManyConnections:
            return None

    return until(taken, f"room to pin for {statement!r}")


@check("a temporary table lives with its session")
def temporary_table():
    others = [psycopg.connect(autocommit=True) for _ in range(2 * CONNECTIONS)]
    with psycopg.connect(autocommit=True) as mine:
        pins(mine, "CREATE TEMPORARY TABLE scratch (a int)")
        home = backend(mine)
        for number, other in enumerate(others):
            mine.execute("INSERT INTO scratch VALUES (%s)", (number,))
            assert backend(mine) == home
            assert other.execute("SELECT to_regclass('scratch')").fetchone() == (None,)
        assert mine.execute("SELECT count(*) FROM scratch").fetchone() == (len(others),)
    for other in others:
        assert other.execute("SELECT to_regclass('scratch')").fetchone() == (None,)
        other.close()


@check("a temporary table that goes with its transaction")
def temporary_on_commit_drop():
    with psycopg.connect() as mine:
        for _ in range(CONNECTIONS):
            mine.execute("SELECT 1")
            pins(mine, "CREATE TEMPORARY TABLE brief ON COMMIT DROP AS SELECT 1 AS a")
            assert mine.execute("SELECT a FROM brief").fetchone() == (1,)
            mine.commit()
            assert mine.execute("SELECT to_regclass('brief')").fetchone() == (None,)
            mine.commit()


@check("a session's advisory lock is its own until it is released")
def advisory_lock():
    with psycopg.connect(autocommit=True) as mine, psycopg.connect(autocommit=True) as other:
        pins(mine, "SELECT pg_advisory_lock(42)")
        home = backend(mine)
        for _ in range(2 * CONNECTIONS):
            assert pins(other, "SELECT pg_try_advisory_lock(42)").fetchone() == (False,)
            assert backend(mine) == home
        assert mine.execute("SELECT pg_advisory_unlock(42)").fetchone() == (True,)
        assert pins(other, "SELECT pg_try_advisory_lock(42)").fetchone() == (True,)
        assert other.execute("SELECT pg_advisory_unlock(42)").fetchone() == (True,)


@check("an advisory lock is released when its session leaves")
def advisory_lock_of_leaver():
    mine = psycopg.connect(autocommit=True)
    pins(mine, "SELECT pg_advisory_lock(43)")
    mine.close()
    with psycopg.connect(autocommit=True) as other:
        until(lambda: pins(other, "SELECT pg_try_advisory_lock(43)").fetchone()[0], "the lock is free")


@check("a transaction's advisory lock pins nothing and goes with it")
def transaction_lock():
    sessions = [psycopg.connect() for _ in range(2 * CONNECTIONS)]
    for session in sessions:
        session.execute("SELECT pg_advisory_xact_lock(44)")
        session.commit()
    for session in sessions:
        assert session.execute("SELECT pg_try_advisory_xact_lock(44)").fetchone() == (True,)
        session.rollback()
        session.close()


@check("LISTEN receives what other sessions NOTIFY")
def listen():
    with psycopg.connect(autocommit=True) as mine, psycopg.connect(autocommit=True) as other:
        pins(mine, "LISTEN news")
        for number in range(3):
            other.execute("SELECT pg_notify('news', %s)", (f"item {number}",))
        other.execute("NOTIFY other_news, 'not for you'")
        other.execute("NOTIFY news, 'last'")
        heard = [notification.payload for notification in mine.notifies(timeout=60, stop_after=4)]
        assert heard == ["item 0", "item 1", "item 2", "last"], heard
        mine.execute("UNLISTEN *")
        other.execute("NOTIFY news, 'too late'")
        assert mine.execute("SELECT 1").fetchone() == (1,)
        assert list(mine.notifies(timeout=0)) == []


@check("a cursor WITH HOLD outlives its transaction")
def with_hold():
    with psycopg.connect() as mine, psycopg.connect(autocommit=True) as other:
        mine.execute("SELECT 1")
        pins(mine, "DECLARE held CURSOR WITH HOLD FOR SELECT generate_series(1, 100)")
        mine.commit()
        total = 0
        while rows := mine.execute("FETCH 7 FROM held").fetchall():
            total += sum(row[0] for row in rows)
            mine.commit()
            other.execute("SELECT 1")
        assert total == 5050, total
        mine.execute("CLOSE held")
        mine.commit()


@check("SET ROLE holds for its session only")
def set_role():
    with psycopg.connect(autocommit=True) as mine, psycopg.connect(autocommit=True) as other:
        other.execute("DROP ROLE IF EXISTS lesser; CREATE ROLE lesser")
        pins(mine, "SET ROLE lesser")
        for _ in range(2 * CONNECTIONS):
            assert mine.execute("SELECT current_user").fetchone() == ("lesser",)
            assert other.execute("SELECT current_user = session_user").fetchone() == (True,)
        mine.execute("RESET ROLE")
        assert mine.execute("SELECT current_user = session_user").fetchone() == (True,)
        other.execute("DROP ROLE lesser")


@check("SET SESSION AUTHORIZATION holds for its session only")
def session_authorization():
    with psycopg.connect(autocommit=True) as other:
        other.execute("DROP ROLE IF EXISTS somebody; CREATE ROLE somebody")
        with psycopg.connect(autocommit=True) as mine:
            pins(mine, "SET SESSION AUTHORIZATION somebody")
            for _ in range(2 * CONNECTIONS):
                assert mine.execute("SELECT session_user").fetchone() == ("somebody",)
                assert other.execute("SELECT session_user").fetchone() != ("somebody",)
            mine.execute("RESET SESSION AUTHORIZATION")
            assert mine.execute("SELECT session_user").fetchone() != ("somebody",)
        other.execute("DROP ROLE somebody")


@check("DISCARD ALL leaves nothing of what pinned a session")
def discard_all():
    with psycopg.connect(autocommit=True) as mine, psycopg.connect(autocommit=True) as other:
        for _ in range(CONNECTIONS):
            pins(mine, "CREATE TEMPORARY TABLE discarded (a int)")
            mine.execute("SELECT pg_advisory_lock(45)")
            mine.execute("LISTEN discarded")
            assert mine.execute("DISCARD ALL").statusmessage == "DISCARD ALL"
            assert mine.execute("SELECT to_regclass('discarded')").fetchone() == (None,)
            assert pins(other, "SELECT pg_try_advisory_lock(45)").fetchone() == (True,)
            assert other.execute("SELECT pg_advisory_unlock(45)").fetchone() == (True,)


@check("sessions that pin one after the other do not use connections up")
def pins_are_given_back():
    for number in range(4 * CONNECTIONS):
        with psycopg.connect(autocommit=True) as mine:
            pins(mine, f"CREATE TEMPORARY TABLE given_back_{number} (a int)")
    with psycopg.connect(autocommit=True) as other:
        assert other.execute("SELECT 1").fetchone() == (1,)
