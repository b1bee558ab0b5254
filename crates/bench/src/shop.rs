//! The shop of the flash sale: its tables, what its application sends, and how to put it back in order.
//!
//! Twenty articles are on sale. An order wants three of them: it locks them in ascending order (so there
//! are no deadlocks), takes each from stock, is written down and commits, in seven round trips, as an
//! application with an ordinary driver makes them. Beside the orders, visitors look at articles (an indexed
//! join by key, well under a millisecond), and the back office runs a sales report now and then (about 60
//! ms of computing, calibrated to the machine): three in a thousand requests, but more than half of the
//! server's work.

mod mariadb;

use std::time::{Duration, Instant};

use crate::Error;
use crate::load::{Client, Draw, Mix, RequestType, Statement, Unit};
use testbed::database::Database;

/// Articles in the shop.
const ITEMS: i64 = 10_000;
/// Articles on sale.
const HOT_ITEMS: i64 = 20;
/// Rows of sales history: more than a report of the aimed-at length reads on a fast machine.
const HISTORY_ROWS: i64 = 600_000;
/// How long a report should compute, alone on an idle server.
const REPORT_TARGET: Duration = Duration::from_millis(60);
/// Rows of the first trial; long enough to time, short enough to not matter.
const REPORT_TRIAL_ROWS: i64 = 50_000;
/// Times each trial is repeated; the fastest counts, because noise only ever adds.
const TRIALS: usize = 5;
/// How long the server may take to come to rest between two rounds.
const REST_BOUND: Duration = Duration::from_secs(20);
/// How often it is asked.
const REST_INTERVAL: Duration = Duration::from_millis(20);

/// Index of the order in [`mix`].
pub const ORDER: u16 = 0;
/// What [`mix`] calls its request types, in its order.
pub(crate) const REQUESTS: [&str; 3] = ["order", "short read", "report"];

/// Sales per category, over so many rows of history from a first one.
pub(crate) const REPORT: &str = "SELECT i.category, count(*), sum(h.amount) FROM sales_history h \
    JOIN items i ON i.id = h.item_id WHERE h.id BETWEEN {0} AND {0} + {1} GROUP BY i.category ORDER BY 3 DESC LIMIT 10";

/// What the server is configured with: memory for the whole shop, no checkpoint in the middle of a round, and
/// one process per query, because it has one core.
pub(crate) const SERVER_SETTINGS: [(&str, &str); 6] = [
    ("shared_buffers", "256MB"),
    ("max_wal_size", "4GB"),
    ("checkpoint_timeout", "30min"),
    ("jit", "off"),
    ("max_parallel_workers_per_gather", "0"),
    ("autovacuum_naptime", "10s"),
];

const TABLES: &str = "
CREATE TABLE authors (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE items (id int PRIMARY KEY, title text NOT NULL, author_id int NOT NULL, category int NOT NULL,
    price numeric(8, 2) NOT NULL, stock bigint NOT NULL);
CREATE TABLE orders (id bigserial PRIMARY KEY, items int[] NOT NULL, placed timestamptz DEFAULT now());
CREATE TABLE sales_history (id int PRIMARY KEY, item_id int NOT NULL, amount numeric(8, 2) NOT NULL);
";

/// Creates and fills the tables.
///
/// # Errors
/// If the server refuses.
pub async fn create(client: &Client) -> Result<(), Error> {
    if client.is_mariadb() {
        return mariadb::create(client).await;
    }
    let fill = format!(
        "INSERT INTO authors SELECT n, 'Author ' || n FROM generate_series(1, 500) n;
         INSERT INTO items SELECT n, 'Article ' || n, 1 + n % 500, n % 40, 5 + n % 90, 1000000000
             FROM generate_series(1, {ITEMS}) n;
         INSERT INTO sales_history SELECT n, 1 + (n::bigint * 7919) % {ITEMS}, 5 + n % 90
             FROM generate_series(1, {HISTORY_ROWS}) n;"
    );
    batch(client, "creating the shop", TABLES).await?;
    batch(client, "filling the shop", &fill).await?;
    // VACUUM can't share a message, which would be a transaction, with anything else.
    batch(client, "vacuuming the shop", "VACUUM (ANALYZE)").await?;
    batch(client, "writing a checkpoint", "CHECKPOINT").await
}

/// How many rows of history a report must read to take about 60 ms, alone. So it is the same report on every
/// machine.
///
/// # Errors
/// If the server refuses.
pub async fn report_rows(client: &Client) -> Result<i64, Error> {
    let took = fastest(client, REPORT_TRIAL_ROWS).await?;
    let rows = REPORT_TRIAL_ROWS as f64 * REPORT_TARGET.as_secs_f64() / took.as_secs_f64();
    Ok((rows as i64).clamp(1, HISTORY_ROWS))
}

/// The fastest of some trials of a report on the first rows of history.
async fn fastest(client: &Client, rows: i64) -> Result<Duration, Error> {
    let statement = Statement::parse(REPORT)?.render(&[1, rows]);
    let mut best = Duration::MAX;
    for _ in 0..TRIALS {
        let start = Instant::now();
        batch(client, "calibrating", &statement).await?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// What the application sends to a database, with reports over so many rows of history. Weights are per
/// thousand requests.
///
/// # Errors
/// None in practice: the description is fixed.
pub fn mix(database: Database, report_rows: i64) -> Result<Mix, Error> {
    let written_down = match database {
        Database::Postgres => "INSERT INTO orders (items) VALUES (ARRAY[{0}, {1}, {2}])",
        Database::Mariadb => mariadb::WRITTEN_DOWN,
    };
    let order = RequestType::new(
        REQUESTS[0],
        325.0,
        Unit::Transaction,
        &[Draw::Distinct { count: 3, low: 1, high: HOT_ITEMS }],
        &[
            "SELECT id, price, stock FROM items WHERE id IN ({0}, {1}, {2}) ORDER BY id FOR UPDATE",
            "UPDATE items SET stock = stock - 1 WHERE id = {0}",
            "UPDATE items SET stock = stock - 1 WHERE id = {1}",
            "UPDATE items SET stock = stock - 1 WHERE id = {2}",
            written_down,
        ],
    )?;
    let read = RequestType::new(
        REQUESTS[1],
        672.0,
        Unit::Statements,
        &[Draw::Uniform { low: 1, high: ITEMS }],
        &["SELECT i.title, a.name, i.price, i.stock FROM items i JOIN authors a ON a.id = i.author_id \
           WHERE i.id = {0}"],
    )?;
    let report = RequestType::new(
        REQUESTS[2],
        3.0,
        Unit::Statements,
        &[Draw::Constant(1), Draw::Constant(report_rows)],
        &[REPORT],
    )?;
    Mix::new(vec![order, read, report])
}

/// Puts the shop back in order: brings the server to rest, removes the orders, fills the stock and clears
/// the dead rows away.
///
/// # Errors
/// If the server doesn't come to rest in time, or refuses.
pub async fn restore(client: &Client) -> Result<(), Error> {
    come_to_rest(client).await?;
    let sweep = format!("TRUNCATE orders; UPDATE items SET stock = 1000000000 WHERE id <= {HOT_ITEMS}");
    batch(client, "restoring the shop", &sweep).await?;
    if client.is_mariadb() {
        return settle(client).await;
    }
    batch(client, "vacuuming the items", "VACUUM (ANALYZE) items").await?;
    settle(client).await
}

/// Has the server do now what it would do later: PostgreSQL writes a checkpoint, MariaDB purges the rows'
/// old versions.
///
/// # Errors
/// If the server refuses.
pub(crate) async fn settle(client: &Client) -> Result<(), Error> {
    match client {
        Client::Postgres(_) => batch(client, "writing a checkpoint", "CHECKPOINT").await,
        Client::Mariadb(_) => batch(client, "purging old versions", mariadb::PURGE).await,
    }
}

/// Ends what other sessions still run, and waits until the server is at rest.
///
/// # Errors
/// If the server doesn't come to rest in time, or refuses.
pub(crate) async fn come_to_rest(client: &Client) -> Result<(), Error> {
    let busy = "backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()";
    let question = if client.is_mariadb() {
        mariadb::kill(client, "KILL QUERY", "command = 'Query'").await?;
        mariadb::BUSY.to_owned()
    } else {
        let sql =
            format!("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {busy} AND state = 'active'");
        batch(client, "canceling what is left", &sql).await?;
        format!("SELECT count(*) FROM pg_stat_activity WHERE {busy}")
    };
    let deadline = Instant::now() + REST_BOUND;
    loop {
        let active = client.column(&question).await.map_err(Error::database("asking for activity"))?;
        if active == ["0"] {
            break;
        }
        if Instant::now() >= deadline {
            let active = active.concat();
            return Err(Error::Experiment(format!("{active} sessions are still busy after {REST_BOUND:?}")));
        }
        tokio::time::sleep(REST_INTERVAL).await;
    }
    Ok(())
}

/// Ends all other sessions.
///
/// # Errors
/// If the server refuses.
pub(crate) async fn end_others(client: &Client) -> Result<(), Error> {
    if client.is_mariadb() {
        return mariadb::kill(client, "KILL", "command NOT IN ('Daemon', 'Killed')").await;
    }
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    batch(client, "ending what is left", others).await
}

pub(crate) async fn batch(client: &Client, action: &str, sql: &str) -> Result<(), Error> {
    client.simple_query(sql).await.map_err(Error::database(action))
}
