"""Django on mysqlclient through the gatekeeper, environment as in ../python/__main__.py."""

import os
import sys
import threading
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "harness"))

import django  # noqa: E402
from django.conf import settings  # noqa: E402

from checks import CONNECTIONS, check, main, together, until  # noqa: E402


def database(**options):
    tls = {"ssl": {"ca": os.environ["MYSQL_TLS_CA"]}} if "MYSQL_TLS_CA" in os.environ else {}
    return {
        "ENGINE": "django.db.backends.mysql",
        "HOST": os.environ["MYSQL_HOST"],
        "PORT": os.environ["MYSQL_TCP_PORT"],
        "USER": os.environ["MYSQL_USER"],
        "PASSWORD": os.environ["MYSQL_PWD"],
        "NAME": os.environ["MYSQL_DATABASE"],
        **options,
        "OPTIONS": {**tls, **options.get("OPTIONS", {})},
    }


settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
    DATABASES={
        "default": database(),
        "kept": database(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True),
        "repeatable": database(OPTIONS={"isolation_level": "repeatable read"}),
        "wrong": database(PASSWORD="not the password"),
    },
)
django.setup()

from django.contrib.auth.models import Group, User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, OperationalError, connections, transaction  # noqa: E402
from django.db.models import Count, F  # noqa: E402
from django.db.utils import ProgrammingError  # noqa: E402

ALIASES = ("default", "kept", "repeatable")
ROWS = 2000


def value(alias, query, *parameters):
    with connections[alias].cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchone()[0]


def fails(call, kind):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was due")


@check("every kind of connection logs in; a wrong password is refused")
def login():
    for alias in ALIASES:
        print(value(alias, "SELECT CURRENT_USER()"), value(alias, "SELECT @@tx_isolation"))
    assert fails(lambda: value("wrong", "SELECT 1"), OperationalError).args[0] == 1045


@check("the migrations of Django's own applications run")
def migrations():
    call_command("migrate", verbosity=0, interactive=False)
    call_command("flush", "--no-input", verbosity=0)
    print(sorted(connections["default"].introspection.table_names()))


@check("a connection for each request, from many threads")
def requests():
    def request(number):
        try:
            alias = ALIASES[number % len(ALIASES)]
            assert value(alias, "SELECT %s + 1", number) == number + 1
            with transaction.atomic(using=alias):
                assert value(alias, "SELECT %s", "it's") == "it's"
        finally:
            connections.close_all()

    together(10 * CONNECTIONS, request)


@check("rows are written and changed by batches")
def batches():
    Group.objects.bulk_create([Group(name=f"group {number}") for number in range(ROWS)], batch_size=500)
    some = list(Group.objects.filter(name__startswith="group 1"))
    for group in some:
        group.name += " changed"
    print(Group.objects.bulk_update(some, ["name"], batch_size=200))
    again = [Group(name=f"group {number}") for number in range(ROWS)]
    Group.objects.bulk_create(again, ignore_conflicts=True)
    print(Group.objects.count(), Group.objects.create(name="last").pk)


@check("queries of the ORM, and rows that are fetched by chunks")
def queries():
    user = User.objects.create_user("gate", password="secret")
    user.groups.set(Group.objects.filter(name__endswith="0"))
    for alias in ALIASES:
        for _ in range(CONNECTIONS):
            assert User.objects.using(alias).get(username="gate").check_password("secret")
            print(User.objects.using(alias).annotate(n=Count("groups")).get().n)
        print(sum(1 for _ in Group.objects.using(alias).iterator(chunk_size=100)))
    print([Group.objects.get_or_create(name="once")[1] for _ in range(3)])


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
                        assert error.args[0] == 1062
                    else:
                        raise AssertionError("a value twice")
                cursor.execute("INSERT INTO django_atomic VALUES (%s)", [4])
            cursor.execute("SELECT sum(a) FROM django_atomic")
            print(cursor.fetchone())


@check("an error leaves the connection usable")
def errors():
    for alias in ALIASES:
        for number in range(CONNECTIONS):
            fails(lambda: value(alias, "SELECT no_such_column"), OperationalError)
            fails(lambda: value(alias, "SELEC"), ProgrammingError)
            assert value(alias, "SELECT %s", number) == number


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

    together(3 * CONNECTIONS, work)
    print(User.objects.get(username="gate").last_name)


@check("a row that is locked is told of at once")
def nowait():
    locked, over = threading.Event(), threading.Event()

    def hold():
        try:
            with transaction.atomic():
                User.objects.select_for_update().get(username="gate")
                locked.set()
                over.wait()
        finally:
            connections.close_all()

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    until(locked.is_set, "the row is locked")
    with transaction.atomic():
        error = fails(lambda: User.objects.select_for_update(nowait=True).get(username="gate"), OperationalError)
        print(error.args[0])
        print(list(User.objects.select_for_update(skip_locked=True).filter(username="gate")))
    over.set()
    holder.join()


if __name__ == "__main__":
    main()
