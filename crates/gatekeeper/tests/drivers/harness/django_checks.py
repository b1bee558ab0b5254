"""Checks of Django that both databases' programs have. They run on each connection of the settings.

A program imports this module behind `django.setup()`. Its connection "wrong" has a wrong password.
"""

import threading

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connections, transaction
from django.db.models import Count, F

from checks import CONNECTIONS, check, together, until

ALIASES = tuple(alias for alias in settings.DATABASES if alias != "wrong")
ROWS = 3000


def value(alias, query, *parameters):
    with connections[alias].cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchone()[0]


def fails(call, kind, cause=Exception):
    try:
        call()
    except kind as error:
        assert isinstance(error.__cause__, cause), error
        return error
    raise AssertionError(f"{kind.__name__} was due")


def code(error):
    """PostgreSQL's SQLSTATE, or MariaDB's number."""
    return getattr(error.__cause__, "sqlstate", error.args[0])


@check("the migrations of Django's own applications run")
def migrations():
    call_command("migrate", verbosity=0, interactive=False)
    call_command("flush", "--no-input", verbosity=0)
    call_command("migrate", verbosity=0, interactive=False)
    tables = sorted(connections["default"].introspection.table_names())
    assert "auth_user" in tables
    print(tables)


@check("a connection for each request, from many threads")
def requests():
    def request(number):
        try:
            alias = ALIASES[number % len(ALIASES)]
            assert value(alias, "SELECT CAST(%s AS DECIMAL) + 1", number) == number + 1
            with transaction.atomic(using=alias):
                assert value(alias, "SELECT CAST(%s AS CHAR(4))", "it's") == "it's"
        finally:
            connections.close_all()

    together(20 * CONNECTIONS, request)


@check("rows are written and changed by batches")
def batches():
    Group.objects.bulk_create([Group(name=f"group {number}") for number in range(ROWS)], batch_size=500)
    assert Group.objects.count() == ROWS
    some = list(Group.objects.filter(name__startswith="group 1"))
    for group in some:
        group.name += " changed"
    assert Group.objects.bulk_update(some, ["name"], batch_size=200) == len(some)
    again = [Group(name=f"group {number}") for number in range(ROWS)]
    Group.objects.bulk_create(again, ignore_conflicts=True)
    assert Group.objects.count() == ROWS + len(some)
    print(Group.objects.create(name="last").pk)


@check("queries of the ORM, on every kind of connection")
def queries():
    user = User.objects.create_user("gate", password="secret")
    user.groups.set(Group.objects.filter(name__endswith="0"))
    for alias in ALIASES:
        for _ in range(2 * CONNECTIONS):
            assert User.objects.using(alias).get(username="gate").check_password("secret")
            assert User.objects.using(alias).annotate(n=Count("groups")).get().n == ROWS // 10
            assert Group.objects.using(alias).filter(name__in=["group 2", "group 3"]).exists()
        assert sum(1 for _ in Group.objects.using(alias).all()) == Group.objects.count()
    created = [Group.objects.get_or_create(name="once")[1] for _ in range(3)]
    assert created == [True, False, False]


@check("iterator() within a transaction fetches rows by chunks")
def iterator():
    for alias in ALIASES:
        with transaction.atomic(using=alias):
            assert sum(1 for _ in Group.objects.using(alias).iterator(chunk_size=100)) == Group.objects.count()


@check("atomic blocks within atomic blocks are savepoints")
def atomic():
    for alias in ALIASES:
        with connections[alias].cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS django_atomic")
            cursor.execute("CREATE TABLE django_atomic (a int UNIQUE)")
            with transaction.atomic(using=alias):
                cursor.execute("INSERT INTO django_atomic VALUES (%s)", [1])
                for _ in range(CONNECTIONS):
                    try:
                        with transaction.atomic(using=alias):
                            cursor.execute("INSERT INTO django_atomic VALUES (%s)", [2])
                            cursor.execute("INSERT INTO django_atomic VALUES (%s)", [1])
                    except IntegrityError as error:
                        assert code(error) in ("23505", 1062), error
                    else:
                        raise AssertionError("a value twice")
                cursor.execute("INSERT INTO django_atomic VALUES (%s)", [4])
            cursor.execute("SELECT sum(a) FROM django_atomic")
            assert cursor.fetchone() == (5,)
            cursor.execute("DROP TABLE django_atomic")


@check("rows are locked by select_for_update, and F() counts right from many threads")
def locks():
    User.objects.filter(username="gate").update(last_name="0")

    def work(_):
        try:
            for _ in range(5):
                with transaction.atomic():
                    mine = User.objects.select_for_update().get(username="gate")
                    mine.last_name = str(int(mine.last_name) + 1)
                    mine.save()
                User.objects.filter(username="gate").update(is_staff=F("is_staff"))
        finally:
            connections.close_all()

    together(4 * CONNECTIONS, work)
    assert User.objects.get(username="gate").last_name == str(5 * 4 * CONNECTIONS)


@check("a row that is locked is told of at once")
def nowait():
    locked, over = threading.Event(), threading.Event()

    def lock(**how):
        with transaction.atomic():
            return list(User.objects.select_for_update(**how).filter(username="gate"))

    def hold():
        try:
            with transaction.atomic():
                assert len(lock()) == 1
                locked.set()
                over.wait()
        finally:
            connections.close_all()

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    until(locked.is_set, "the row is locked")
    with transaction.atomic():
        error = fails(lambda: lock(nowait=True), OperationalError)
        assert code(error) in ("55P03", 1205), error
        assert lock(skip_locked=True) == []
    over.set()
    holder.join()
