//! The statements of the shop that MariaDB words differently.

use super::{HISTORY_ROWS, ITEMS, batch};
use crate::Error;
use crate::load::{Client, DatabaseError};

/// How an order is written down.
pub(super) const WRITTEN_DOWN: &str = "INSERT INTO orders (items) VALUES ('{0},{1},{2}')";
/// What waits until no old versions of rows are left: indexes of hot rows would be full of them.
pub(super) const PURGE: &str = "SET GLOBAL innodb_max_purge_lag_wait = 0";
/// How many other sessions run something, or have a transaction open.
pub(super) const BUSY: &str = "SELECT count(*) FROM information_schema.processlist p \
    WHERE p.id <> connection_id() AND p.command <> 'Daemon' AND (p.command NOT IN ('Sleep', 'Killed') \
    OR EXISTS (SELECT 1 FROM information_schema.innodb_trx t WHERE t.trx_mysql_thread_id = p.id))";
/// MariaDB's error for a session that has ended before it was killed.
const NO_SUCH_SESSION: u16 = 1094;

const TABLES: [&str; 4] = [
    "CREATE TABLE authors (id int PRIMARY KEY, name varchar(100) NOT NULL)",
    "CREATE TABLE items (id int PRIMARY KEY, title varchar(100) NOT NULL, author_id int NOT NULL, \
     category int NOT NULL, price decimal(8, 2) NOT NULL, stock bigint NOT NULL)",
    "CREATE TABLE orders (id bigint AUTO_INCREMENT PRIMARY KEY, items varchar(100) NOT NULL, \
     placed timestamp DEFAULT current_timestamp)",
    "CREATE TABLE sales_history (id int PRIMARY KEY, item_id int NOT NULL, amount decimal(8, 2) NOT NULL)",
];

/// Creates and fills the tables.
pub(super) async fn create(client: &Client) -> Result<(), Error> {
    for table in TABLES {
        batch(client, "creating the shop", table).await?;
    }
    let fill = [
        "INSERT INTO authors SELECT seq, concat('Author ', seq) FROM seq_1_to_500".to_owned(),
        format!(
            "INSERT INTO items SELECT seq, concat('Article ', seq), 1 + seq % 500, seq % 40, 5 + seq % 90, \
             1000000000 FROM seq_1_to_{ITEMS}"
        ),
        format!(
            "INSERT INTO sales_history SELECT seq, 1 + (seq * 7919) % {ITEMS}, 5 + seq % 90 \
             FROM seq_1_to_{HISTORY_ROWS}"
        ),
        "ANALYZE TABLE authors, items, sales_history".to_owned(),
    ];
    for statement in fill {
        batch(client, "filling the shop", &statement).await?;
    }
    batch(client, "purging old versions", PURGE).await
}

/// Kills what is at the other sessions of which this holds.
pub(super) async fn kill(client: &Client, how: &str, of: &str) -> Result<(), Error> {
    let others =
        format!("SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND {of}");
    let ids = client.column(&others).await.map_err(Error::database("asking for sessions"))?;
    for id in ids {
        match client.simple_query(&format!("{how} {id}")).await {
            Err(DatabaseError::Mariadb(mysql_async::Error::Server(error)))
                if error.code == NO_SUCH_SESSION => {}
            killed => killed.map_err(Error::database("ending what is left"))?,
        }
    }
    Ok(())
}
