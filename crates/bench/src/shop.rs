//! The shop of the flash sale: its tables, what its application sends, and how to put it back in order.
//!
//! Twenty articles are on sale and everybody wants three of them. An order computes its customer's bonus (0.8 ms
//! of computing, calibrated to the machine), locks its three articles in ascending order (so there are no deadlocks), writes the order and its lines, takes the articles from stock and
//! commits: fourteen round trips, as an application with an ordinary driver makes them. Beside the orders, visitors look at
//! articles (an indexed join by key, well under a millisecond) and somebody in the back office runs a sales
//! report now and then (about 60 ms of computing, calibrated to the machine).

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::Error;
use crate::load::{Draw, Mix, RequestType, Statement, Unit};

/// Articles in the shop.
const ITEMS: i64 = 10_000;
/// Articles on sale.
const HOT_ITEMS: i64 = 20;
/// Customers of the shop.
const CUSTOMERS: i64 = 10_000;
/// Rows of sales history: more than a report of the aimed-at length reads on a fast machine.
const HISTORY_ROWS: i64 = 600_000;
/// How long a report should compute, alone on an idle server.
const REPORT_TARGET: Duration = Duration::from_millis(60);
/// How long an order should compute its customer's bonus, before it locks anything.
const BONUS_TARGET: Duration = Duration::from_micros(800);
/// Rows of the first trials; long enough to time, short enough to not matter.
const REPORT_TRIAL_ROWS: i64 = 50_000;
const BONUS_TRIAL_ROWS: i64 = 5_000;
/// Times each trial is repeated; the fastest counts, because noise only ever adds.
const TRIALS: usize = 5;
/// How long the server may take to come to rest between two rounds.
const REST_BOUND: Duration = Duration::from_secs(20);
/// How often it is asked.
const REST_INTERVAL: Duration = Duration::from_millis(20);

/// Index of the order in [`mix`].
pub const ORDER: u16 = 0;
/// Index of the short read in [`mix`].
pub const READ: u16 = 1;

/// Sales per category, over so many rows of history from a first one.
const REPORT: &str = "SELECT i.category, count(*), sum(h.amount) FROM sales_history h \
    JOIN items i ON i.id = h.item_id WHERE h.id BETWEEN {0} AND {0} + {1} GROUP BY i.category ORDER BY 3 DESC LIMIT 10";
/// What a customer has spent, over so many rows of history from a first one.
const BONUS: &str = "SELECT sum(amount) FROM sales_history WHERE id BETWEEN {0} AND {0} + {1}";

const TABLES: &str = "
CREATE TABLE authors (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE items (id int PRIMARY KEY, title text NOT NULL, author_id int NOT NULL, category int NOT NULL,
    price numeric(8, 2) NOT NULL, stock bigint NOT NULL);
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders (id bigserial PRIMARY KEY, customer_id int NOT NULL, placed timestamptz DEFAULT now());
CREATE TABLE order_lines (order_id bigint NOT NULL, item_id int NOT NULL, quantity int NOT NULL);
CREATE INDEX ON order_lines (order_id);
CREATE TABLE sales_history (id int PRIMARY KEY, item_id int NOT NULL, amount numeric(8, 2) NOT NULL);
";

/// Creates and fills the tables.
///
/// # Errors
/// If the server refuses.
pub async fn create(client: &Client) -> Result<(), Error> {
    let fill = format!(
        "INSERT INTO authors SELECT n, 'Author ' || n FROM generate_series(1, 500) n;
         INSERT INTO items SELECT n, 'Article ' || n, 1 + n % 500, n % 40, 5 + n % 90, 1000000000
             FROM generate_series(1, {ITEMS}) n;
         INSERT INTO customers SELECT n, 'Customer ' || n FROM generate_series(1, {CUSTOMERS}) n;
         INSERT INTO sales_history SELECT n, 1 + (n::bigint * 7919) % {ITEMS}, 5 + n % 90
             FROM generate_series(1, {HISTORY_ROWS}) n;"
    );
    batch(client, "creating the shop", TABLES).await?;
    batch(client, "filling the shop", &fill).await?;
    // VACUUM can't share a message, which would be a transaction, with anything else.
    batch(client, "vacuuming the shop", "VACUUM (ANALYZE)").await?;
    batch(client, "writing a checkpoint", "CHECKPOINT").await
}

/// How many rows of history the statements read that compute, so that they take the same time on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of a sales report.
    pub report_rows: i64,
    /// Rows of the bonus that an order computes for its customer.
    pub bonus_rows: i64,
}

/// Finds the sizes with which a report takes about 60 ms and a bonus about 0.8 ms, alone; returns also the time
/// that the report then took.
///
/// # Errors
/// If the server refuses.
pub async fn calibrate(client: &Client) -> Result<(Sizes, Duration), Error> {
    let report_rows = calibrated(client, REPORT, REPORT_TARGET, REPORT_TRIAL_ROWS).await?;
    let bonus_rows = calibrated(client, BONUS, BONUS_TARGET, BONUS_TRIAL_ROWS).await?;
    let report_alone = fastest(client, REPORT, report_rows).await?;
    Ok((Sizes { report_rows, bonus_rows }, report_alone))
}

async fn calibrated(client: &Client, template: &str, target: Duration, trial: i64) -> Result<i64, Error> {
    let took = fastest(client, template, trial).await?;
    let rows = trial as f64 * target.as_secs_f64() / took.as_secs_f64();
    Ok((rows as i64).clamp(1, HISTORY_ROWS))
}

/// The fastest of some trials of a statement on the first rows of history.
async fn fastest(client: &Client, template: &str, rows: i64) -> Result<Duration, Error> {
    let statement = Statement::parse(template)?.render(&[1, rows]);
    let mut best = Duration::MAX;
    for _ in 0..TRIALS {
        let start = Instant::now();
        batch(client, "calibrating", &statement).await?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// What the application sends. Weights are per thousand requests.
///
/// # Errors
/// None in practice: the description is fixed.
pub fn mix(sizes: Sizes) -> Result<Mix, Error> {
    let bonus = BONUS.replace("{0}", "{3}").replace("{1}", "{4}");
    let order = RequestType::new(
        "order",
        799.5,
        Unit::Transaction,
        &[
            Draw::Distinct { count: 3, low: 1, high: HOT_ITEMS },
            Draw::Uniform { low: 1, high: CUSTOMERS },
            Draw::Constant(sizes.bonus_rows),
        ],
        &[
            &bonus,
            "SELECT name FROM customers WHERE id = {3}",
            "SELECT price, stock FROM items WHERE id = {0} FOR UPDATE",
            "SELECT price, stock FROM items WHERE id = {1} FOR UPDATE",
            "SELECT price, stock FROM items WHERE id = {2} FOR UPDATE",
            "INSERT INTO orders (customer_id) VALUES ({3}) RETURNING id",
            "INSERT INTO order_lines VALUES (currval('orders_id_seq'), {0}, 1)",
            "INSERT INTO order_lines VALUES (currval('orders_id_seq'), {1}, 1)",
            "INSERT INTO order_lines VALUES (currval('orders_id_seq'), {2}, 1)",
            "UPDATE items SET stock = stock - 1 WHERE id = {0}",
            "UPDATE items SET stock = stock - 1 WHERE id = {1}",
            "UPDATE items SET stock = stock - 1 WHERE id = {2}",
        ],
    )?;
    let read = RequestType::new(
        "short read",
        200.0,
        Unit::Statements,
        &[Draw::Uniform { low: 1, high: ITEMS }],
        &["SELECT i.title, a.name, i.price, i.stock FROM items i JOIN authors a ON a.id = i.author_id \
           WHERE i.id = {0}"],
    )?;
    let report = RequestType::new(
        "report",
        0.5,
        Unit::Statements,
        &[Draw::Constant(1), Draw::Constant(sizes.report_rows)],
        &[REPORT],
    )?;
    Mix::new(vec![order, read, report])
}

/// Puts the shop back in order: ends what other sessions still run, waits until the server is at rest, removes
/// the orders, fills the stock and clears the dead rows away.
///
/// # Errors
/// If the server doesn't come to rest in time, or refuses.
pub async fn restore(client: &Client) -> Result<(), Error> {
    let busy = "backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()";
    batch(
        client,
        "canceling what is left",
        &format!("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {busy} AND state = 'active'"),
    )
    .await?;
    let question = format!("SELECT count(*) FROM pg_stat_activity WHERE {busy}");
    let deadline = Instant::now() + REST_BOUND;
    loop {
        let row = client.query_one(&question, &[]).await.map_err(Error::database("asking for activity"))?;
        let active: i64 = row.get(0);
        if active == 0 {
            break;
        }
        if Instant::now() >= deadline {
            return Err(Error::Experiment(format!("{active} sessions are still busy after {REST_BOUND:?}")));
        }
        tokio::time::sleep(REST_INTERVAL).await;
    }
    let sweep =
        format!("TRUNCATE orders, order_lines; UPDATE items SET stock = 1000000000 WHERE id <= {HOT_ITEMS}");
    batch(client, "restoring the shop", &sweep).await?;
    batch(client, "vacuuming the items", "VACUUM (ANALYZE) items").await?;
    batch(client, "writing a checkpoint", "CHECKPOINT").await
}

async fn batch(client: &Client, action: &str, sql: &str) -> Result<(), Error> {
    client.batch_execute(sql).await.map_err(Error::database(action))
}
