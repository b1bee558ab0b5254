"""SQLAlchemy's mapped classes: the schema, batches of rows, savepoints, versions, reflection."""

import psycopg
from sqlalchemy import ForeignKey, exc, func, inspect, select, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.orm.exc import StaleDataError

from checks import CONNECTIONS, check, together
from engine import engine


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "alchemy_authors"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    version: Mapped[int] = mapped_column()
    books: Mapped[list["Book"]] = relationship(back_populates="author", cascade="all, delete-orphan")
    __mapper_args__ = {"version_id_col": version}


class Book(Base):
    __tablename__ = "alchemy_books"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(ForeignKey("alchemy_authors.id"))
    author: Mapped[Author] = relationship(back_populates="books")


POOL = engine(pool_size=2 * CONNECTIONS, max_overflow=8 * CONNECTIONS)


@check("a schema is created, reflected, and filled by batches")
def schema():
    Base.metadata.drop_all(POOL)
    Base.metadata.create_all(POOL)
    assert {column["name"] for column in inspect(POOL).get_columns("alchemy_books")} == {"id", "title", "author_id"}
    with Session(POOL) as session:
        session.add_all([Author(name=f"author {n}", books=[Book(title=f"book {n}.{m}") for m in range(5)]) for n in range(300)])
        session.commit()
        assert session.scalar(select(func.count()).select_from(Book)) == 1500
        found = session.scalars(select(Author).join(Book).where(Book.title == "book 17.3")).one()
        assert found.name == "author 17" and len(found.books) == 5


@check("a savepoint undoes what breaks a constraint")
def savepoints():
    with Session(POOL) as session:
        session.add(Author(name="kept"))
        session.flush()
        for _ in range(CONNECTIONS):
            try:
                with session.begin_nested():
                    session.add(Author(name="author 1"))
            except exc.IntegrityError as error:
                assert isinstance(error.orig, psycopg.errors.UniqueViolation)
            else:
                raise AssertionError("a name twice")
        session.commit()
        assert session.scalar(select(func.count()).where(Author.name == "kept").select_from(Author)) == 1


@check("a row changed by another session is noticed")
def versions():
    with Session(POOL) as one, Session(POOL) as other:
        mine = one.scalars(select(Author).where(Author.name == "author 2")).one()
        one.commit()
        theirs = other.scalars(select(Author).where(Author.name == "author 2")).one()
        assert mine.version == theirs.version == 1
        theirs.name = "author two"
        # Their change is committed while mine is loaded.
        other.commit()
        try:
            one.execute(update(Author).where(Author.id == mine.id, Author.version == 1).values(name="lost"))
            one.refresh(mine)
            assert mine.name == "author two"
            one.execute(text("UPDATE alchemy_authors SET version = version + 1 WHERE id = :id"), {"id": mine.id})
            mine.name = "author 2 again"
            one.commit()
        except StaleDataError:
            one.rollback()
        else:
            raise AssertionError("a stale row was written")


@check("threads with sessions of one pool keep the sum")
def threads():
    with Session(POOL) as session:
        session.execute(text("DROP TABLE IF EXISTS alchemy_sums"))
        session.execute(text("CREATE TABLE alchemy_sums (id int PRIMARY KEY, n int)"))
        session.execute(text("INSERT INTO alchemy_sums SELECT id, 0 FROM generate_series(0, 4) id"))
        session.commit()

    def work(seed):
        for step in range(10):
            with Session(POOL) as session:
                session.execute(text("UPDATE alchemy_sums SET n = n + 1 WHERE id = :id"), {"id": (seed + step) % 5})
                session.commit() if step % 5 else session.rollback()

    together(8 * CONNECTIONS, work)
    with Session(POOL) as session:
        assert session.scalar(text("SELECT sum(n) FROM alchemy_sums")) == 8 * 8 * CONNECTIONS
        session.execute(text("DROP TABLE alchemy_sums"))
        session.commit()
    Base.metadata.drop_all(POOL)
