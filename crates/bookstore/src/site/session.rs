//! One interaction's conversation with the database: its statements with their tag, its transaction, its end.
//!
//! A session owns its connection. It has begun a transaction or not; only `commit` and `roll_back` end one.
//! If a session is dropped within a transaction, its connection is closed and never goes back to the pool:
//! nobody inherits what another one has begun.

use clap::ValueEnum;

use super::failure::Failure;
use super::locking::{Locking, Tables};
use crate::database::{Connection, Parameter, Row};
use crate::interaction::Interaction;

/// How a page finds its order lines among all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OrderLines {
    /// By an index if the database finds that cheaper, as PostgreSQL does
    #[default]
    Index,
    /// By reading all lines, as databases of the papers' time did: it makes the page longer than others by
    /// far
    Scan,
}

/// What of a site's options concerns its statements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// What interactions lock.
    pub(super) locking: Locking,
    /// Whether orders are counted before one is placed, as the public servlets did.
    pub(super) counts_orders: bool,
    /// How best sellers are found.
    pub(super) best_sellers: OrderLines,
    /// How books are found that were bought together.
    pub(super) bought_together: OrderLines,
    /// Whether a connection of the pool prepares each statement once, and keeps it.
    pub(super) prepares: bool,
}

/// An interaction's conversation with the database.
pub(super) struct Session {
    connection: Option<Connection>,
    tag: String,
    is_in_transaction: bool,
    pub(super) manner: Manner,
}

/// The comment that names an interaction's route, as sqlcommenter writes it.
pub(super) fn route_tag(interaction: Interaction) -> String {
    let mut tag = String::from(" /*route='");
    for byte in interaction.route().bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            tag.push(char::from(byte));
        } else {
            tag.push_str(&format!("%{byte:02X}"));
        }
    }
    tag.push_str("'*/");
    tag
}

impl Session {
    /// Over a connection, with this text behind every statement.
    pub(super) fn new(connection: Connection, tag: String, manner: Manner) -> Self {
        Self { connection: Some(connection), tag, is_in_transaction: false, manner }
    }

    fn connection(&self) -> Result<&Connection, Failure> {
        self.connection.as_ref().ok_or(Failure::Internal("a session without a connection"))
    }

    /// Begins a transaction that locks these tables. The isolation is said to PostgreSQL; a connection to
    /// MariaDB has it from its login.
    pub(super) async fn begin(&mut self, isolation: &str, locked: Option<Tables>) -> Result<(), Failure> {
        self.is_in_transaction = true;
        let is_mariadb = self.connection()?.is_mariadb();
        let begin =
            if is_mariadb { "BEGIN".to_owned() } else { format!("BEGIN ISOLATION LEVEL {isolation}") };
        self.batch(&begin).await?;
        let opening = locked.map(|tables| tables.statements(is_mariadb)).unwrap_or_default();
        for statement in opening.split_terminator(';') {
            self.batch(statement).await?;
        }
        Ok(())
    }

    /// Ends the transaction, and keeps what it did.
    pub(super) async fn commit(&mut self) -> Result<(), Failure> {
        self.batch("COMMIT").await?;
        self.is_in_transaction = false;
        Ok(())
    }

    /// Ends the transaction if there is one, and undoes what it did. A connection that can't even do this
    /// is closed.
    pub(super) async fn roll_back(&mut self) {
        if self.is_in_transaction && self.batch("ROLLBACK").await.is_ok() {
            self.is_in_transaction = false;
        }
    }

    async fn batch(&self, statement: &str) -> Result<(), Failure> {
        Ok(self.connection()?.batch(&format!("{statement}{}", self.tag)).await?)
    }

    /// The rows of a statement.
    pub(super) async fn rows(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        let sql = format!("{sql}{}", self.tag);
        Ok(self.connection()?.rows(&sql, parameters, self.manner.prepares).await?)
    }

    /// The first row of a statement, if it has one.
    pub(super) async fn row(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>, Failure> {
        Ok(self.rows(sql, parameters).await?.into_iter().next())
    }

    /// The number that a statement which always has one row returns.
    pub(super) async fn number(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<i32, Failure> {
        let row = self.row(sql, parameters).await?.ok_or(Failure::Internal("a number that is no row"))?;
        Ok(row.try_get(0)?)
    }

    /// Runs a statement without rows, and returns how many it changed.
    pub(super) async fn execute(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64, Failure> {
        let sql = format!("{sql}{}", self.tag);
        Ok(self.connection()?.execute(&sql, parameters, self.manner.prepares).await?)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let (true, Some(connection)) = (self.is_in_transaction, self.connection.take()) {
            connection.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_as_sqlcommenter_writes_them() {
        assert_eq!(route_tag(Interaction::BestSellers), " /*route='%2Fbest'*/");
        assert_eq!(route_tag(Interaction::AdminConfirm), " /*route='%2Fadmin%2Fbooks%2F%7Bid%7D%2Fchange'*/");
    }
}
