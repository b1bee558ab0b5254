//! A gate for PostgreSQL as its console sees it.

use std::collections::HashMap;

use admission::PoolId;

use crate::console::{Console, Facts, Failure, IdleServer, Mode, SessionRow, Subject};
use crate::postgres::roster::Card;
use crate::postgres::{Pooling, Status, pins};
use crate::sql::stats;

impl Subject for Status {
    fn console(&self) -> Console {
        self.0.settings().console.clone()
    }

    fn facts(&self) -> Facts {
        let settings = self.0.settings();
        let is_session = settings.pooling == Pooling::Session || settings.observe;
        Facts {
            listen: settings.listen.clone(),
            upstream: settings.upstream.clone(),
            connections: settings.connections,
            max_clients: settings.max_clients,
            mode: if is_session { Mode::Session } else { Mode::Transaction },
        }
    }

    fn sessions(&self) -> Vec<SessionRow> {
        self.0.roster.cards().iter().map(|card| row(card)).collect()
    }

    fn idle_servers(&self) -> Vec<IdleServer> {
        self.0.pools.idle_servers()
    }

    fn owners(&self) -> HashMap<PoolId, (String, String)> {
        self.0.pools.owners()
    }

    fn stats(&self) -> Vec<stats::Row> {
        self.0.stats.rows()
    }

    fn hold_up(&self, database: Option<&str>) -> Result<(), Failure> {
        let settings = self.0.settings();
        if settings.observe {
            return Err(Failure::new("0A000", "this gate only observes: it holds nobody up"));
        }
        if let Some(database) = database {
            if settings.pooling == Pooling::Session {
                let message = "with pooling = \"session\" the whole gate can be paused, not one database";
                return Err(Failure::new("0A000", message));
            }
            if self.0.pools.snapshot().iter().all(|pool| pool.database != database) {
                return Err(Failure::new("3D000", format!("nobody is connected to a database {database:?}")));
            }
        }
        if self.0.pools.pause(database) { Ok(()) } else { Err(Failure::new("55000", "already paused")) }
    }

    fn let_go(&self, database: Option<&str>) -> Result<(), Failure> {
        if self.0.pools.resume(database) {
            return Ok(());
        }
        let paused = self.0.pools.paused();
        let Some(database) = database.filter(|_| !paused.names().is_empty()) else {
            return Err(Failure::new("55000", "not paused"));
        };
        let (which, what) = match paused.is_everything() {
            true => ("the whole gate".to_owned(), "resume that"),
            false => (format!("only {}", paused.names().join(", ")), "name one of those"),
        };
        Err(Failure::new("55000", format!("{database:?} is not paused by itself: {which} is; {what}")))
    }

    fn holds_up(&self, database: Option<&str>) -> bool {
        let paused = self.0.pools.paused();
        database.map_or_else(|| paused.is_everything(), |database| paused.holds(database))
    }

    fn end(&self, session: u64) {
        if let Some(card) = self.0.roster.find(session) {
            card.kill();
        }
    }

    fn reconnect(&self) {
        self.0.reconnect();
    }
}

fn row(card: &Card) -> SessionRow {
    let identity = card.identity.clone();
    SessionRow {
        id: card.id,
        user: identity.user,
        database: identity.database,
        application: identity.application,
        address: identity.address,
        is_encrypted: identity.is_encrypted,
        connected: card.connected,
        activity: card.activity(),
        since: card.since(),
        server: card.server(),
        pins: pins::names(&card.pins),
    }
}
