"""Session settings: they follow their session over every server connection and are seen by no other."""

import psycopg
from psycopg import errors

from checks import CONNECTIONS, check

# Reported by the server (ParameterStatus), reported only by newer ones, and never reported.
SETTINGS = {
    "TimeZone": "Asia/Tokyo",
    "DateStyle": "German, DMY",
    "application_name": "it's a \"name\"",
    "IntervalStyle": "iso_8601",
    "search_path": "pg_catalog, public",
    "statement_timeout": "77s",
    "lock_timeout": "78s",
    "work_mem": "5MB",
    "extra_float_digits": "0",
    "default_transaction_isolation": "repeatable read",
}


def show(connection, name):
    return connection.execute(f"SELECT current_setting('{name}')").fetchone()[0]


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def assignment(name, value):
    """`SET` with a list as a list: a quoted search_path would be one schema's name."""
    plain = name in ("search_path", "DateStyle")
    return f"SET {name} = {value if plain else literal(value)}"


def busy(sessions):
    """One statement in every session, so that server connections change hands."""
    for session in sessions:
        session.execute("SELECT 1")


@check("a SET follows its session and is seen by no other")
def follows():
    sessions = [psycopg.connect(autocommit=True) for _ in range(2 * CONNECTIONS)]
    mine, others = sessions[0], sessions[1:]
    for name, value in SETTINGS.items():
        default = show(others[0], name)
        assert default != value, name
        assert mine.execute(assignment(name, value)).statusmessage == "SET"
        for other in others:
            assert show(other, name) == default, f"{name} leaked"
            assert show(mine, name) == value, f"{name} was lost"
        assert mine.execute(f"RESET {name}").statusmessage == "RESET"
        busy(others)
        assert show(mine, name) == default, f"{name} was not reset"
    for session in sessions:
        session.close()


@check("sessions with different settings take turns")
def take_turns():
    zones = ["UTC", "Asia/Tokyo", "Europe/Berlin", "America/New_York", "Africa/Cairo"]
    sessions = [psycopg.connect(autocommit=True) for _ in range(3 * CONNECTIONS)]
    for index, session in enumerate(sessions):
        session.execute(f"SET TIME ZONE '{zones[index % len(zones)]}'")
        session.execute(f"SET statement_timeout = {1000 * (index + 100)}")
    for _ in range(4):
        for index, session in enumerate(sessions):
            zone = zones[index % len(zones)]
            assert show(session, "TimeZone") == zone
            assert session.info.parameter_status("TimeZone") == zone
            assert show(session, "statement_timeout") == f"{index + 100}s"
    for session in sessions:
        session.close()


@check("a SET that is rolled back did not happen")
def rolled_back():
    with psycopg.connect() as mine, psycopg.connect(autocommit=True) as other:
        default = show(other, "TimeZone")
        mine.execute("SELECT 1")
        mine.execute("SET TimeZone = 'Asia/Tokyo'")
        mine.execute("SET statement_timeout = '66s'")
        assert show(mine, "TimeZone") == "Asia/Tokyo"
        mine.rollback()
        for _ in range(2 * CONNECTIONS):
            assert show(mine, "TimeZone") == default
            assert show(mine, "statement_timeout") == "0"
            mine.commit()
            assert show(other, "TimeZone") == default


@check("a SET that is committed stays, a SET LOCAL goes")
def committed():
    with psycopg.connect() as mine, psycopg.connect(autocommit=True) as other:
        mine.execute("SELECT 1")
        mine.execute("SET statement_timeout = '66s'")
        mine.execute("SET LOCAL lock_timeout = '55s'")
        assert show(mine, "lock_timeout") == "55s"
        mine.commit()
        for _ in range(2 * CONNECTIONS):
            assert show(mine, "statement_timeout") == "66s"
            assert show(mine, "lock_timeout") == "0"
            mine.commit()
            assert show(other, "statement_timeout") == "0"


@check("a SET that first begins the transaction belongs to it")
def first_in_transaction():
    with psycopg.connect() as mine:
        default = show(mine, "TimeZone")
        mine.rollback()
        mine.execute("SET TimeZone = 'Asia/Tokyo'")
        mine.rollback()
        assert show(mine, "TimeZone") == default
        mine.rollback()
        mine.execute("SET TimeZone = 'Asia/Tokyo'")
        mine.commit()
        assert show(mine, "TimeZone") == "Asia/Tokyo"
        mine.rollback()


@check("an invalid SET is the server's error and changes nothing")
def invalid():
    with psycopg.connect(autocommit=True) as mine:
        for statement, expected in (("SET TimeZone = 'Nowhere/Land'", errors.InvalidParameterValue),
                                    ("SET no_such_parameter = 1", errors.UndefinedObject)):
            try:
                mine.execute(statement)
            except expected:
                continue
            raise AssertionError(f"{statement} was taken")
        assert show(mine, "TimeZone") == mine.info.parameter_status("TimeZone")


@check("set_config is a SET")
def set_config():
    with psycopg.connect(autocommit=True) as mine, psycopg.connect(autocommit=True) as other:
        mine.execute("SELECT set_config('statement_timeout', '44s', false)")
        mine.execute("SELECT set_config('my.own', 'x', false)")
        for _ in range(2 * CONNECTIONS):
            busy([other])
            assert show(mine, "statement_timeout") == "44s"
            assert show(mine, "my.own") == "x"
            assert show(other, "statement_timeout") == "0"
            assert other.execute("SELECT current_setting('my.own', true)").fetchone()[0] in (None, "")


@check("search_path decides what a prepared statement means, for each session")
def search_path():
    with (
        psycopg.connect(autocommit=True, prepare_threshold=0) as one,
        psycopg.connect(autocommit=True, prepare_threshold=0) as two,
    ):
        for schema, side in (("left_side", "left"), ("right_side", "right")):
            one.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE", prepare=False)
            one.execute(f"CREATE SCHEMA {schema}", prepare=False)
            one.execute(f"CREATE TABLE {schema}.sides AS SELECT '{side}' AS side", prepare=False)
        one.execute("SET search_path = left_side")
        two.execute("SET search_path = right_side")
        for _ in range(2 * CONNECTIONS):
            assert one.execute("SELECT side FROM sides WHERE %s", (True,)).fetchone() == ("left",)
            assert two.execute("SELECT side FROM sides WHERE %s", (True,)).fetchone() == ("right",)
        for schema in ("left_side", "right_side"):
            one.execute(f"DROP SCHEMA {schema} CASCADE", prepare=False)


@check("RESET ALL and DISCARD ALL forget every setting of their session")
def reset_all():
    with psycopg.connect(autocommit=True, application_name="started so") as mine, psycopg.connect(autocommit=True) as other:
        other.execute("SET statement_timeout = '33s'")
        for forget, tag in (("RESET ALL", "RESET"), ("DISCARD ALL", "DISCARD ALL")):
            mine.execute("SET TimeZone = 'Asia/Tokyo'")
            mine.execute("SET statement_timeout = '22s'")
            mine.execute("SET application_name = 'renamed'")
            assert mine.execute(forget).statusmessage == tag
            for _ in range(CONNECTIONS):
                assert show(mine, "TimeZone") == show(other, "TimeZone")
                assert show(mine, "statement_timeout") == "0"
                assert show(mine, "application_name") == "started so"
                assert show(other, "statement_timeout") == "33s"


@check("a RESET does not return to what another session was started with")
def reset_to_ones_own():
    named = [psycopg.connect(autocommit=True, application_name=f"theirs {index}") for index in range(CONNECTIONS)]
    with psycopg.connect(autocommit=True) as mine:
        for reset in ("RESET application_name", "SET application_name TO DEFAULT", "RESET ALL", "DISCARD ALL"):
            for _ in range(CONNECTIONS):
                mine.execute("SET application_name = 'renamed'")
                mine.execute(reset)
                busy(named)
                assert show(mine, "application_name") == "", reset
                assert mine.info.parameter_status("application_name") == "", reset
    for index, session in enumerate(named):
        assert show(session, "application_name") == f"theirs {index}"
        session.close()
