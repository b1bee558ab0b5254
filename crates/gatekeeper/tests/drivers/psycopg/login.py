"""Logging in: SCRAM by relay, what the server refuses, what a driver reads before its first query."""

import os

import psycopg

from checks import CONNECTIONS, THROUGH_GATE, check


def refused(**arguments):
    try:
        psycopg.connect(**arguments).close()
    except psycopg.OperationalError as error:
        return str(error)
    raise AssertionError(f"the login with {arguments} was let in")


@check("a right password is let in")
def right_password():
    with psycopg.connect() as connection:
        assert connection.execute("SELECT current_user").fetchone() == (os.environ["PGUSER"],)


@check("a wrong password is refused with the server's own words")
def wrong_password():
    for _ in range(3):
        message = refused(password="not the password")
        assert "password authentication failed" in message, message


@check("an unknown user is refused")
def unknown_user():
    message = refused(user="nobody_of_that_name")
    assert "password authentication failed" in message, message


@check("an unknown database is refused")
def unknown_database():
    message = refused(dbname="no_such_database")
    assert 'database "no_such_database" does not exist' in message, message


@check("the server's parameters are known before the first query")
def parameters():
    with psycopg.connect() as connection:
        for name in ("server_version", "client_encoding", "standard_conforming_strings", "integer_datetimes",
                     "DateStyle", "TimeZone", "is_superuser", "session_authorization"):
            assert connection.info.parameter_status(name), f"{name} was not reported"
        assert connection.info.parameter_status("session_authorization") == os.environ["PGUSER"]
        assert connection.info.backend_pid > 0


@check("start-up parameters hold for their session and for no other")
def startup_parameters():
    with (
        psycopg.connect(application_name="first") as first,
        psycopg.connect(application_name="second", options="-c statement_timeout=12345") as second,
        psycopg.connect(client_encoding="LATIN1") as third,
    ):
        for _ in range(2 * CONNECTIONS):
            assert first.execute("SHOW application_name").fetchone() == ("first",)
            assert second.execute("SHOW application_name").fetchone() == ("second",)
            assert second.execute("SHOW statement_timeout").fetchone() == ("12345ms",)
            assert first.execute("SHOW statement_timeout").fetchone() == ("0",)
            assert third.execute("SHOW client_encoding").fetchone() == ("LATIN1",)
            assert first.execute("SHOW client_encoding").fetchone() == ("UTF8",)
            assert third.execute("SELECT 'é', length('é')").fetchone() == ("é", 1)
            for connection in (first, second, third):
                connection.rollback()


@check("many sessions share few server connections")
def sharing():
    sessions = [psycopg.connect(autocommit=True) for _ in range(3 * CONNECTIONS)]
    pids = set()
    for _ in range(4):
        pids.update(session.execute("SELECT pg_backend_pid()").fetchone()[0] for session in sessions)
    for session in sessions:
        session.close()
    expected = CONNECTIONS if THROUGH_GATE else 3 * CONNECTIONS
    assert len(pids) <= expected, f"{len(sessions)} sessions ran on {len(pids)} server connections"
