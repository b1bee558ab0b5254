//! One request over one connection: its statements one after another, and again where the application would.

use super::Outcome;
use super::client::Client;
use super::mix::RequestType;
use super::said::DatabaseError;

/// How a request went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Execution {
    /// How it ended.
    pub(super) outcome: Outcome,
    /// How often it was sent again.
    pub(super) retries: u32,
    /// What the server said, if it failed for good.
    pub(super) failure: Option<String>,
}

impl Execution {
    /// The client gave up.
    pub(super) const GIVEN_UP: Self = Self { outcome: Outcome::TimedOut, retries: 0, failure: None };
}

/// Sends a request's statements, each after the answer to the last, and says how it went.
///
/// After an error that the type retries, all of it is sent again at once, as frameworks do; the caller
/// that waits for it bounds how often.
pub(super) async fn execute(client: &Client, request_type: &RequestType, seed: u64) -> Execution {
    let script = request_type.script(seed);
    let mut retries = 0;
    loop {
        let Err(error) = attempt(client, request_type, &script).await else {
            return Execution { outcome: Outcome::Completed, retries, failure: None };
        };
        if error.state().is_some_and(|state| request_type.retries(state)) && !client.is_closed() {
            retries += 1;
            continue;
        }
        let outcome = if error.is_refusal() { Outcome::Rejected } else { Outcome::Failed };
        let failure = Some(format!("{}: {}", request_type.name, error.said()));
        return Execution { outcome, retries, failure };
    }
}

/// One attempt; a transaction that failed is rolled back.
async fn attempt(
    client: &Client,
    request_type: &RequestType,
    script: &[String],
) -> Result<(), DatabaseError> {
    for statement in script {
        let Err(error) = client.simple_query(statement).await else { continue };
        if request_type.is_transaction() {
            // If this fails too, the connection is closed and will be opened again.
            let _ = client.simple_query("ROLLBACK").await;
        }
        return Err(error);
    }
    Ok(())
}
