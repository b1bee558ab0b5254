//! Filling a MariaDB database: PostgreSQL's tables and indexes in MariaDB's words, rows by `LOAD DATA`.
//!
//! InnoDB keeps a table's rows in its primary key, so that is made before the rows come, in its order. The
//! other indexes are made behind them, and the row of `population` comes last, as for PostgreSQL.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, InfileData, Params};

use super::postgres::{BATCH, CHUNK, FILLED, INDEXES, Population, SEQUENCES, TABLES, tables};
use super::progress::{Progress, Step};
use super::rows::Rows;
use crate::Error;
use crate::database::mariadb_options;
use crate::schema::{TABLE_LOCK, Table};

async fn connect(url: &str) -> Result<Conn, Error> {
    let failed = || Error::database("connecting to the database");
    let options = mariadb_options(url).map_err(Error::database("reading the database's address"))?;
    Conn::new(options).await.map_err(failed())
}

async fn run(conn: &mut Conn, action: &str, sql: &str) -> Result<(), Error> {
    conn.query_drop(sql).await.map_err(Error::database(action))
}

/// Makes sure that there is no table of a shop.
///
/// # Errors
///
/// If there is one, or the database says no.
pub(super) async fn refuse_filled(url: &str) -> Result<(), Error> {
    let sql = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ('{}')",
        tables().join("', '")
    );
    let found = connect(url).await?.query::<String, _>(sql).await;
    let found = found.map_err(Error::database("looking which tables there are"))?;
    if found.is_empty() { Ok(()) } else { Err(Error::Filled { tables: found.join(", ") }) }
}

/// Creates the tables, empty and with their primary keys, in place of any that are there.
///
/// # Errors
///
/// If the database says no.
pub(super) async fn create(url: &str) -> Result<(), Error> {
    let mut conn = connect(url).await?;
    let mut statements = vec![format!("DROP TABLE IF EXISTS {}, {TABLE_LOCK}", tables().join(", "))];
    statements.extend(SEQUENCES.map(|name| format!("DROP SEQUENCE IF EXISTS {name}")));
    // A TIMESTAMP of MariaDB changes by itself. Texts are compared by their bytes, as in PostgreSQL's C.
    let own = TABLES.replace(" timestamp ", " datetime ");
    let own = own.split_terminator(';').map(str::trim).filter(|sql| !sql.is_empty());
    let binary = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
    statements.extend(own.map(|sql| match sql.starts_with("CREATE TABLE") {
        true => format!("{sql} ENGINE InnoDB {binary}"),
        false => sql.to_owned(),
    }));
    statements.push(format!(
        "CREATE TABLE {TABLE_LOCK} (name varchar(20) PRIMARY KEY) ENGINE InnoDB {binary} \
         SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ('{}')",
        Table::ALL.map(Table::name).join("', '")
    ));
    statements.extend(primary_keys());
    for statement in &statements {
        run(&mut conn, "creating the tables", statement).await?;
    }
    Ok(())
}

/// Fills the tables.
///
/// # Errors
///
/// If the database says no.
pub(super) async fn fill(url: &str, rows: &Arc<Rows>, progress: &Arc<Progress>) -> Result<(), Error> {
    let mut conn = connect(url).await?;
    run(&mut conn, "preparing to fill", "SET unique_checks = 0, foreign_key_checks = 0").await?;
    for table in FILLED {
        let (name, keys) = (table.name(), rows.keys(table));
        let step = Arc::new(progress.step(name, "rows", u64::from(keys)));
        let (rows, told) = (Arc::clone(rows), Arc::clone(&step));
        conn.set_infile_handler(async move { Ok(chunks(rows, table, told)) });
        let load = format!("LOAD DATA LOCAL INFILE 'rows' INTO TABLE {name} CHARACTER SET utf8mb4");
        run(&mut conn, &format!("filling {name}"), &load).await?;
        step.end(conn.affected_rows());
    }
    Ok(())
}

/// The rows of a table as text, piece by piece.
fn chunks(rows: Arc<Rows>, table: Table, step: Arc<Step>) -> InfileData {
    let keys = rows.keys(table);
    let next = move |mut last: u32| {
        let mut text = String::with_capacity(CHUNK + (CHUNK >> 2));
        while last < keys && text.len() < CHUNK {
            let next = keys.min(last + BATCH);
            rows.write(table, last + 1..=next, &mut text);
            step.advance(u64::from(next - last));
            last = next;
        }
        std::future::ready((!text.is_empty()).then(|| (Ok(Bytes::from(text)), last)))
    };
    stream::unfold(0, next).boxed()
}

/// Makes the indexes, counts what the planner wants to know, and says what the database was filled with.
///
/// # Errors
///
/// If the database says no.
pub(super) async fn finish(url: &str, population: Population, progress: &Progress) -> Result<(), Error> {
    let mut conn = connect(url).await?;
    let step = progress.step("indexes", "indexes", INDEXES.len() as u64);
    for statement in INDEXES.iter().filter(|sql| sql.starts_with("CREATE INDEX")) {
        run(&mut conn, "making indexes", statement).await?;
        step.advance(1);
    }
    step.end(INDEXES.len() as u64);
    let step = progress.step("statistics", "tables", Table::ALL.len() as u64);
    for table in Table::ALL {
        run(&mut conn, "counting for the planner", &format!("ANALYZE TABLE {}", table.name())).await?;
        step.advance(1);
    }
    step.end(Table::ALL.len() as u64);
    let Population { browsers, scale, seed } = population;
    let ends = [
        ("address_ids", scale.addresses()),
        ("customer_ids", scale.customers),
        ("order_ids", scale.orders()),
    ];
    for (sequence, last) in ends {
        run(&mut conn, "numbering on", &format!("SELECT setval({sequence}, {last})")).await?;
    }
    let sql = "INSERT INTO population VALUES (?, ?, ?, ?, ?)";
    // The database's number has a sign, as PostgreSQL's: the same bits.
    let values: Params = (browsers, scale.items, scale.customers, scale.orders(), seed as i64).into();
    conn.exec_drop(sql, values).await.map_err(Error::database("saying what the database was filled with"))
}

/// The statements that make primary keys, without what only PostgreSQL understands.
fn primary_keys() -> impl Iterator<Item = String> {
    let keys = INDEXES.iter().filter(|sql| sql.starts_with("ALTER TABLE"));
    keys.map(|sql| sql.split(", SET (").next().unwrap_or(sql).to_owned())
}
