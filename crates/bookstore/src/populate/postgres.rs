//! Filling a PostgreSQL database: tables, rows by `COPY`, keys and indexes, then the planner's statistics.
//!
//! Tables are filled without any index and two at a time, one connection each; each is emptied and filled
//! in one transaction, so that its rows need no marks of visibility (`FREEZE`), and no write-ahead log
//! where `wal_level` is `minimal`. The row of `population` comes last: a database without it wasn't filled
//! to the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{SinkExt, pin_mut};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use super::progress::Progress;
use super::rows::Rows;
use crate::Error;
use crate::names::Scale;
use crate::schema::{POPULATION, Table};

/// How much text goes to the server at once.
pub(super) const CHUNK: usize = 1 << 16;
/// How many tables are filled, or indexes made, at a time.
const AT_ONCE: usize = 2;
/// How many rows' keys are written between two looks at the chunk's length.
pub(super) const BATCH: u32 = 64;

/// The sequences that number rows.
pub(super) const SEQUENCES: [&str; 4] = ["address_ids", "customer_ids", "order_ids", "cart_ids"];

/// The tables, without keys.
pub(super) const TABLES: &str = "
CREATE TABLE address (addr_id int NOT NULL, addr_street1 varchar(40) NOT NULL, addr_street2 varchar(40) NOT NULL,
    addr_city varchar(30) NOT NULL, addr_state varchar(20) NOT NULL, addr_zip varchar(10) NOT NULL, addr_co_id int NOT NULL);
CREATE TABLE author (a_id int NOT NULL, a_fname varchar(20) NOT NULL, a_lname varchar(20) NOT NULL,
    a_mname varchar(20) NOT NULL, a_dob date NOT NULL, a_bio varchar(500) NOT NULL);
CREATE TABLE cc_xacts (cx_o_id int NOT NULL, cx_type varchar(10) NOT NULL, cx_num varchar(20) NOT NULL,
    cx_name varchar(36) NOT NULL, cx_expire date NOT NULL, cx_auth_id char(15), cx_xact_amt numeric(15,2) NOT NULL,
    cx_xact_date timestamp NOT NULL, cx_co_id int NOT NULL);
CREATE TABLE country (co_id int NOT NULL, co_name varchar(50) NOT NULL, co_exchange numeric(12,6) NOT NULL,
    co_currency varchar(18) NOT NULL);
CREATE TABLE customer (c_id int NOT NULL, c_uname varchar(20) NOT NULL, c_passwd varchar(20) NOT NULL,
    c_fname varchar(17) NOT NULL, c_lname varchar(17) NOT NULL, c_addr_id int NOT NULL, c_phone varchar(18) NOT NULL,
    c_email varchar(50) NOT NULL, c_since date NOT NULL, c_last_login date NOT NULL, c_login timestamp NOT NULL,
    c_expiration timestamp NOT NULL, c_discount numeric(3,2) NOT NULL, c_balance numeric(15,2) NOT NULL,
    c_ytd_pmt numeric(15,2) NOT NULL, c_birthdate date NOT NULL, c_data varchar(500) NOT NULL);
CREATE TABLE item (i_id int NOT NULL, i_title varchar(60) NOT NULL, i_a_id int NOT NULL, i_pub_date date NOT NULL,
    i_publisher varchar(60) NOT NULL, i_subject varchar(60) NOT NULL, i_desc varchar(500) NOT NULL,
    i_related1 int NOT NULL, i_related2 int NOT NULL, i_related3 int NOT NULL, i_related4 int NOT NULL,
    i_related5 int NOT NULL, i_thumbnail varchar(40) NOT NULL, i_image varchar(40) NOT NULL,
    i_srp numeric(15,2) NOT NULL, i_cost numeric(15,2) NOT NULL, i_avail date NOT NULL, i_stock int NOT NULL,
    i_isbn char(13) NOT NULL, i_page int NOT NULL, i_backing varchar(15) NOT NULL, i_dimensions varchar(25) NOT NULL);
CREATE TABLE order_line (ol_id int NOT NULL, ol_o_id int NOT NULL, ol_i_id int NOT NULL, ol_qty int NOT NULL,
    ol_discount numeric(3,2) NOT NULL, ol_comments varchar(110) NOT NULL, ol_cost numeric(15,2) NOT NULL);
CREATE TABLE orders (o_id int NOT NULL, o_c_id int NOT NULL, o_date timestamp NOT NULL, o_sub_total numeric(15,2) NOT NULL,
    o_tax numeric(15,2) NOT NULL, o_total numeric(15,2) NOT NULL, o_ship_type varchar(10) NOT NULL,
    o_ship_date timestamp NOT NULL, o_bill_addr_id int NOT NULL, o_ship_addr_id int NOT NULL, o_status varchar(15) NOT NULL);
CREATE TABLE shopping_cart (sc_id int NOT NULL, sc_time timestamp NOT NULL);
CREATE TABLE shopping_cart_line (scl_sc_id int NOT NULL, scl_i_id int NOT NULL, scl_qty int NOT NULL);
CREATE TABLE population (browsers int NOT NULL, items int NOT NULL, customers int NOT NULL, orders int NOT NULL,
    seed bigint NOT NULL);
CREATE SEQUENCE address_ids;
CREATE SEQUENCE customer_ids;
CREATE SEQUENCE order_ids;
CREATE SEQUENCE cart_ids;
";

/// Keys and indexes, the slowest first; those of the specification's servlets. The carts are emptied and
/// filled all the time, so their table is cleaned oftener than the default says.
pub(super) const INDEXES: [&str; 20] = [
    "ALTER TABLE order_line ADD PRIMARY KEY (ol_o_id, ol_id)",
    "ALTER TABLE customer ADD PRIMARY KEY (c_id)",
    "CREATE INDEX order_line_i_id ON order_line (ol_i_id)",
    "CREATE INDEX customer_uname ON customer (c_uname)",
    "CREATE INDEX address_zip ON address (addr_zip)",
    "ALTER TABLE address ADD PRIMARY KEY (addr_id)",
    "CREATE INDEX address_country ON address (addr_co_id)",
    "CREATE INDEX customer_address ON customer (c_addr_id)",
    "ALTER TABLE orders ADD PRIMARY KEY (o_id)",
    "CREATE INDEX orders_customer ON orders (o_c_id)",
    "ALTER TABLE cc_xacts ADD PRIMARY KEY (cx_o_id)",
    "CREATE INDEX item_title ON item (i_title)",
    "CREATE INDEX item_subject ON item (i_subject)",
    "CREATE INDEX item_author ON item (i_a_id)",
    "ALTER TABLE item ADD PRIMARY KEY (i_id)",
    "ALTER TABLE author ADD PRIMARY KEY (a_id)",
    "CREATE INDEX author_last_name ON author (a_lname)",
    "ALTER TABLE country ADD PRIMARY KEY (co_id), ADD UNIQUE (co_name)",
    "ALTER TABLE shopping_cart ADD PRIMARY KEY (sc_id)",
    "ALTER TABLE shopping_cart_line ADD PRIMARY KEY (scl_sc_id, scl_i_id), \
     SET (autovacuum_vacuum_scale_factor = 0.02)",
];

/// What is filled, two at a time; the largest begin.
pub(super) const FILLED: [Table; 8] = [
    Table::Customer,
    Table::OrderLine,
    Table::Address,
    Table::Orders,
    Table::CcXacts,
    Table::Item,
    Table::Author,
    Table::Country,
];

/// The record of a filled database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Population {
    pub(super) browsers: u32,
    pub(super) scale: Scale,
    pub(super) seed: u64,
}

/// Connects, and drives the connection in a task of its own.
async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.map_err(Error::database("connecting to the database"))?;
    tokio::spawn(connection);
    Ok(client)
}

/// Every table of a shop.
pub(super) fn tables() -> Vec<&'static str> {
    Table::ALL.map(Table::name).into_iter().chain([POPULATION]).collect()
}

/// Makes sure that there is no table of a shop.
///
/// # Errors
///
/// If there is one, or the database says no.
pub(super) async fn refuse_filled(url: &str) -> Result<(), Error> {
    let sql = "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND pg_table_is_visible(oid) AND relname = ANY($1)";
    let found = connect(url).await?.query(sql, &[&tables()]).await;
    let found = found.map_err(Error::database("looking which tables there are"))?;
    if found.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = found.iter().map(|row| row.get(0)).collect();
    Err(Error::Filled { tables: names.join(", ") })
}

/// Creates the tables, empty, in place of any that are there.
///
/// # Errors
///
/// If the database says no.
pub(super) async fn create(url: &str) -> Result<(), Error> {
    let drop = format!(
        "SET client_min_messages = warning; DROP TABLE IF EXISTS {};
         DROP SEQUENCE IF EXISTS {};",
        tables().join(", "),
        SEQUENCES.join(", ")
    );
    let script = format!("BEGIN; {drop} {TABLES} COMMIT");
    connect(url).await?.batch_execute(&script).await.map_err(Error::database("creating the tables"))
}

/// Fills the tables.
///
/// # Errors
///
/// If the database says no.
pub(super) async fn fill(url: &str, rows: &Arc<Rows>, progress: &Arc<Progress>) -> Result<(), Error> {
    let mut tasks = JoinSet::new();
    for table in FILLED {
        if tasks.len() == AT_ONCE {
            joined(tasks.join_next().await)?;
        }
        let (url, rows, progress) = (url.to_owned(), Arc::clone(rows), Arc::clone(progress));
        tasks.spawn(async move { copy(&url, &rows, table, &progress).await });
    }
    while let Some(result) = tasks.join_next().await {
        joined(Some(result))?;
    }
    Ok(())
}

fn joined(result: Option<Result<Result<(), Error>, tokio::task::JoinError>>) -> Result<(), Error> {
    match result {
        None => Ok(()),
        Some(Ok(result)) => result,
        Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Fills one table.
async fn copy(url: &str, rows: &Rows, table: Table, progress: &Progress) -> Result<(), Error> {
    let name = table.name();
    let failed = || Error::database(format!("filling {name}"));
    let client = connect(url).await?;
    let keys = rows.keys(table);
    let step = progress.step(name, "rows", u64::from(keys));
    client.batch_execute(&format!("BEGIN; TRUNCATE {name}")).await.map_err(failed())?;
    let sink = client
        .copy_in::<_, Bytes>(&format!("COPY {name} FROM STDIN WITH (FREEZE)"))
        .await
        .map_err(failed())?;
    pin_mut!(sink);
    let mut text = String::with_capacity(CHUNK + (CHUNK >> 2));
    let (mut key, mut count) = (1, 0);
    while key <= keys {
        let last = keys.min(key.saturating_add(BATCH - 1));
        count += rows.write(table, key..=last, &mut text);
        step.advance(u64::from(last - key + 1));
        key = last + 1;
        if text.len() >= CHUNK || key > keys {
            let chunk = std::mem::replace(&mut text, String::with_capacity(CHUNK + (CHUNK >> 2)));
            sink.feed(Bytes::from(chunk)).await.map_err(failed())?;
        }
    }
    let copied = sink.finish().await.map_err(failed())?;
    debug_assert_eq!(copied, count);
    client.batch_execute("COMMIT").await.map_err(failed())?;
    step.end(copied);
    Ok(())
}

/// Makes keys and indexes, gathers the planner's statistics, and records what the database was filled with.
///
/// # Errors
///
/// If the database says no.
pub(super) async fn finish(url: &str, population: Population, progress: &Progress) -> Result<(), Error> {
    let step = Arc::new(progress.step("indexes", "indexes", INDEXES.len() as u64));
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (client, next, step) = (connect(url).await?, Arc::clone(&next), Arc::clone(&step));
        tasks.spawn(async move {
            let failed = || Error::database("making indexes");
            client.batch_execute("SET maintenance_work_mem = '128MB'").await.map_err(failed())?;
            while let Some(statement) = INDEXES.get(next.fetch_add(1, Ordering::Relaxed)) {
                client.batch_execute(statement).await.map_err(failed())?;
                step.advance(1);
            }
            Ok(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        joined(Some(result))?;
    }
    step.end(INDEXES.len() as u64);
    let client = connect(url).await?;
    let step = progress.step("statistics", "tables", Table::ALL.len() as u64);
    for table in Table::ALL {
        let vacuum = format!("VACUUM ANALYZE {}", table.name());
        client.batch_execute(&vacuum).await.map_err(Error::database("counting for the planner"))?;
        step.advance(1);
    }
    step.end(Table::ALL.len() as u64);
    let Population { browsers, scale, seed } = population;
    let (items, customers, orders) = (scale.items, scale.customers, scale.orders());
    let addresses = scale.addresses();
    // The database has no unsigned numbers: the same bits.
    let seed = seed as i64;
    client
        .batch_execute(&format!(
            "BEGIN; SELECT setval('address_ids', {addresses}), setval('customer_ids', {customers}),
                 setval('order_ids', {orders});
             INSERT INTO population VALUES ({browsers}, {items}, {customers}, {orders}, {seed}); COMMIT"
        ))
        .await
        .map_err(Error::database("saying what the database was filled with"))
}
