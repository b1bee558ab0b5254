"""Django's models: migrations, batches of rows, locks, server-side cursors, queries of the ORM."""

from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connections, transaction
from django.db.models import Count, F

from checks import CONNECTIONS, check, together

ROWS = 3000


@check("the migrations of Django's own applications run")
def migrations():
    for command in (["flush", "--no-input"], []):
        call_command("migrate", verbosity=0, interactive=False)
        if command:
            call_command(*command, verbosity=0)
    assert "auth_user" in connections["default"].introspection.table_names()


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


@check("queries of the ORM, bound by the client, by the server, and prepared")
def queries():
    user = User.objects.create_user("gate", password="secret")
    user.groups.set(Group.objects.filter(name__endswith="0"))
    for alias in ("default", "prepared"):
        for _ in range(2 * CONNECTIONS):
            assert User.objects.using(alias).get(username="gate").check_password("secret")
            counted = User.objects.using(alias).annotate(n=Count("groups")).get()
            assert counted.n == user.groups.count()
            assert Group.objects.using(alias).filter(name__in=["group 2", "group 3"]).exists()
    created = [Group.objects.get_or_create(name="once")[1] for _ in range(3)]
    assert created == [True, False, False]


@check("iterator() within a transaction is a server-side cursor")
def iterator():
    for alias in ("default", "prepared", "pooled"):
        with transaction.atomic(using=alias):
            assert sum(1 for _ in Group.objects.using(alias).iterator(chunk_size=100)) == Group.objects.count()


@check("iterator() outside a transaction is a cursor that outlives it, and pins its session")
def iterator_outside():
    # WITH HOLD: the documentation of Django says that transaction pooling breaks this. Here it does not.
    for _ in range(CONNECTIONS):
        rows = Group.objects.order_by("id").iterator(chunk_size=100)
        first = next(rows)
        assert Group.objects.filter(id=first.id).exists()
        assert sum(1 for _ in rows) == Group.objects.count() - 1


@check("rows are locked by select_for_update, and F() counts right from many threads")
def locks():
    user = User.objects.get(username="gate")
    User.objects.filter(id=user.id).update(last_name="0")

    def work(_):
        try:
            for _ in range(5):
                with transaction.atomic():
                    mine = User.objects.select_for_update().get(id=user.id)
                    mine.last_name = str(int(mine.last_name) + 1)
                    mine.save()
                Group.objects.filter(name="once").update(id=F("id"))
        finally:
            connections.close_all()

    together(4 * CONNECTIONS, work)
    user.refresh_from_db()
    assert user.last_name == str(5 * 4 * CONNECTIONS), user.last_name
    call_command("migrate", "auth", "zero", verbosity=0, interactive=False)
