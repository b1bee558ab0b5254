"""A cursor that outlives its transaction, and the end of the tables."""

from django.contrib.auth.models import Group
from django.core.management import call_command

from checks import CONNECTIONS, check


@check("iterator() outside a transaction is a cursor that outlives it, and pins its session")
def iterator_outside():
    # WITH HOLD: the documentation of Django says that transaction pooling breaks this. Here it does not.
    for _ in range(CONNECTIONS):
        rows = Group.objects.order_by("id").iterator(chunk_size=100)
        first = next(rows)
        assert Group.objects.filter(id=first.id).exists()
        assert sum(1 for _ in rows) == Group.objects.count() - 1


@check("the migrations of Django's users run backwards")
def backwards():
    call_command("migrate", "auth", "zero", verbosity=0, interactive=False)
