//! A replication connection, with session pooling: bytes pass both ways, unread.
//!
//! The stream has no end and a protocol of its own (CopyBoth). There is nothing to admit, so the gate
//! asks for no permit. The connection counts as a client and in the budget, as any other session.

use std::sync::Arc;

use tokio::io::{AsyncWriteExt, copy, split};
use tokio::time::timeout;
use wire::postgres::startup::parameter;

use super::server::ROUND_TRIP_LIMIT;
use super::server::Server;
use super::{LoggedIn, Shared};

/// Whether start-up parameters ask for a replication connection: the server takes the spellings of a
/// boolean, and `database`.
pub(super) fn is_asked_for(parameters: &[(String, String)]) -> bool {
    parameter(parameters, "replication").is_some_and(|value| {
        !matches!(value.to_ascii_lowercase().as_str(), "false" | "off" | "no" | "0" | "f" | "n")
    })
}

/// Carries the connection's bytes until one side ends it, or the gate shuts down.
pub(super) async fn serve(shared: Arc<Shared>, logged_in: LoggedIn) {
    let LoggedIn { mut client, client_input, server, cancel, places: _places, .. } = logged_in;
    let Some(mut server) = server else { return };
    // Whenever a cancel comes, it is for what runs there.
    cancel.running(&server);
    let Server { stream, input, .. } = &mut *server;
    let carry = async {
        client.send(input).await?;
        stream.send(&client_input).await?;
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (split(&mut client), split(stream));
        tokio::select! {
            ended = copy(&mut from_client, &mut to_server) => ended,
            ended = copy(&mut from_server, &mut to_client) => ended,
        }
    };
    tokio::select! {
        // The side that ended it has been heard; the other side learns by the end of the connection.
        _ = carry => {}
        () = shared.shutdown.draining() => {}
    }
    let _ = timeout(ROUND_TRIP_LIMIT, async {
        server.stream.shutdown().await?;
        client.shutdown().await
    })
    .await;
}
