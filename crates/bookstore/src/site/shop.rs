//! The shop as its pages see it: the way to perform an interaction's work on the database.
//!
//! Work is performed in a task of its own and to its end, also when the visitor has left: as in a servlet
//! container, a page that nobody waits for any more still occupies its connection. If the database undoes a
//! transaction because it collided with another one, the whole work is done again, so many times at most.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use tokio::sync::OnceCell;

use super::connections::{Connections, Isolation};
use super::failure::Failure;
use super::locking::{Held, Locking, Locks, Tables};
use super::session::{Manner, Session, route_tag};
use crate::database::Parameter;
use crate::interaction::Interaction;

/// What is a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Transactions {
    /// Each interaction is one transaction, as in the papers
    #[default]
    Page,
    /// Each statement commits by itself; only an order, a change of a cart and a change of a book are
    /// transactions
    Statement,
}

/// What an interaction does with the database.
pub(super) trait Work: Send + Sync + 'static {
    /// What it finds out.
    type Answer: Send + 'static;
    /// The interaction.
    const INTERACTION: Interaction;
    /// What it touches.
    const TABLES: Tables;
    /// It makes no sense by halves: it is a transaction in any mode.
    const IS_WHOLE: bool = false;

    /// Performs the page, perhaps several times, each time on a database that knows nothing of the times
    /// before.
    fn perform(
        &self,
        db: &Session,
        shop: &Shop,
    ) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;
}

/// The shop.
pub(super) struct Shop {
    pub(super) connections: Connections,
    pub(super) locks: Locks,
    pub(super) transactions: Transactions,
    pub(super) isolation: Isolation,
    pub(super) manner: Manner,
    pub(super) has_tags: bool,
    pub(super) retries: u32,
    pub(super) timeout: Duration,
    pub(super) images: Option<PathBuf>,
    /// How many books there are, once somebody had to know.
    pub(super) items: OnceCell<i32>,
}

impl Shop {
    /// Performs work on the database.
    ///
    /// # Errors
    ///
    /// What the work says; busy if it collided too often, or got no connection or lock in time.
    pub(super) async fn perform<W: Work>(self: &Arc<Self>, work: W) -> Result<W::Answer, Failure> {
        let shop = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut attempt = 0;
            loop {
                match shop.attempt(&work).await {
                    Err(Failure::Collision(reason)) if attempt < shop.retries => {
                        attempt += 1;
                        tracing::debug!(reason, attempt, "tried again");
                        // Requests that collided don't do so again at the same instant.
                        let pause = rand::random_range(0..=5_u64 << attempt.min(6));
                        tokio::time::sleep(Duration::from_millis(pause)).await;
                    }
                    result => return result,
                }
            }
        });
        task.await.map_err(|_| Failure::Internal("an interaction that ended in a panic"))?
    }

    async fn attempt<W: Work>(&self, work: &W) -> Result<W::Answer, Failure> {
        let _held = match self.manner.locking {
            Locking::Application => tokio::time::timeout(self.timeout, self.locks.lock(W::TABLES))
                .await
                .map_err(|_| Failure::Busy("the tables were locked for too long".to_owned()))?,
            _ => Held::default(),
        };
        let connection = self.connections.get().await?;
        let tag = if self.has_tags { route_tag(W::INTERACTION) } else { String::new() };
        let mut session = Session::new(connection, tag, self.manner);
        if self.transactions == Transactions::Statement && !W::IS_WHOLE {
            return work.perform(&session, self).await;
        }
        let result = self.within_transaction(&mut session, work).await;
        session.roll_back().await;
        result
    }

    /// Performs work as a transaction, which has not ended if it fails.
    async fn within_transaction<W: Work>(
        &self,
        session: &mut Session,
        work: &W,
    ) -> Result<W::Answer, Failure> {
        let locked = (self.manner.locking == Locking::Tables).then_some(W::TABLES);
        session.begin(self.isolation.sql(), locked).await?;
        let answer = work.perform(session, self).await?;
        session.commit().await?;
        Ok(answer)
    }

    /// A book at random.
    pub(super) async fn any_book(&self, db: &Session) -> Result<i32, Failure> {
        let count = self.items.get_or_try_init(|| db.number("SELECT max(i_id) FROM item", &[])).await?;
        Ok(rand::random_range(1..=(*count).max(1)))
    }

    /// The scale of what the database was filled with: books and customers.
    pub(super) async fn scale(&self) -> Result<crate::names::Scale, Failure> {
        let session = Session::new(self.connections.get().await?, String::new(), self.manner);
        let row = session.row("SELECT items, customers FROM population", &[]).await?;
        let row = row.ok_or(Failure::NotFound("scale"))?;
        let (items, customers): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
        Ok(crate::names::Scale { items: items.unsigned_abs(), customers: customers.unsigned_abs() })
    }
}

/// A whole number as a parameter.
pub(super) const fn int(value: &i32) -> Parameter<'_> {
    Parameter::Int(value)
}

/// A text as a parameter.
pub(super) const fn text<'a>(value: &'a &str) -> Parameter<'a> {
    Parameter::Text(value)
}

/// An amount in cents as a parameter.
pub(super) const fn cents(value: &i64) -> Parameter<'_> {
    Parameter::Cents(value)
}
