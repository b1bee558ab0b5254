//! mysql_async and sqlx through the gatekeeper: `mysql-rust-checks mysql_async` (or sqlx).
//!
//! The environment is as in ../python/__main__.py. A check prints what the server answered, and a line of
//! its own; the first that fails ends the run.

mod mysql_async_checks;
mod sqlx_checks;

use std::future::Future;
use std::time::Duration;

/// A bound that only a hang reaches: the slowest check takes a few seconds.
const CHECK_TIMEOUT: Duration = Duration::from_secs(120);
/// The pause between two looks at a condition, itself bounded by `CHECK_TIMEOUT`.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Where to connect.
#[derive(Clone)]
pub struct Place {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub database: String,
    /// The authority, where TLS is asked for.
    pub authority: Option<String>,
    /// How many server connections the gate has.
    pub connections: usize,
}

impl Place {
    fn of_environment() -> Self {
        let given = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is set"));
        let number = |name: &str| given(name).parse().unwrap_or_else(|_| panic!("{name} is a number"));
        Self {
            host: given("MYSQL_HOST"),
            port: number("MYSQL_TCP_PORT"),
            user: given("MYSQL_USER"),
            password: given("MYSQL_PWD"),
            database: given("MYSQL_DATABASE"),
            authority: std::env::var("MYSQL_TLS_CA").ok(),
            connections: usize::from(number("GATEKEEPER_CONNECTIONS")),
        }
    }
}

/// Runs a check to its end, which must come.
pub async fn check(title: &str, run: impl Future<Output = ()>) {
    if tokio::time::timeout(CHECK_TIMEOUT, run).await.is_err() {
        panic!("{title:?} hangs");
    }
    println!("ok     {title}");
}

/// Polls a condition until it holds; the check's own bound ends it otherwise.
pub async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    while !holds().await {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[tokio::main]
async fn main() {
    let place = Place::of_environment();
    match std::env::args().nth(1).as_deref() {
        Some("mysql_async") => mysql_async_checks::run(&place).await,
        Some("sqlx") => sqlx_checks::run(&place).await,
        other => panic!("no such driver: {other:?}"),
    }
}
