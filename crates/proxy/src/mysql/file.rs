//! A file of the client's on its way to the server (LOAD DATA LOCAL): packets up to an empty one.
//!
//! States: the client's turn begins when it has been asked for the file, and ends with the empty packet.
//! Only then does the server answer, also if it has failed in the middle. If the client leaves before, the
//! server's connection is closed: an empty packet would have the server keep a part of the file.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use wire::mysql::answer;
use wire::mysql::codec::{self, HEADER_LEN};
use wire::mysql::response::{Follower, Turn};

use super::channel::{Channel, Lost, OUTPUT_MAX};
use super::kill::Watch;
use super::server::Server;

/// Why a file didn't come to its end.
pub(super) enum Cut {
    /// The client has left, has broken the protocol, or has to leave.
    Client,
    /// The server's connection.
    Server,
}

/// Passes the client's file on, as fast as the server takes it. Returns how long the client was waited
/// for.
pub(super) async fn pass(
    (server, client): (&mut Server, &mut Channel),
    follower: &mut Follower,
    watch: &mut Watch<'_>,
) -> Result<Duration, Cut> {
    let begun = Instant::now();
    // The request for the file.
    client.flush_within(watch.limit).await.map_err(|_| Cut::Client)?;
    let mut waited = begun.elapsed();
    let mut passing = 0_usize;
    loop {
        if passing == 0 {
            if follower.turn() != Turn::Client {
                break;
            }
            if let Some(packet) = codec::packet(&client.input) {
                follower.client(packet).map_err(|_| Cut::Client)?;
                passing = packet.len();
            }
        }
        let length = passing.min(client.input.len());
        server.channel.output.extend_from_slice(&client.input.split_to(length));
        passing -= length;
        if server.channel.output.len() < OUTPUT_MAX && has_more(&client.input, passing) {
            continue;
        }
        tokio::select! {
            biased;
            flushed = server.channel.flush() => flushed.map_err(|_| Cut::Server)?,
            () = watch.left(client) => return Err(Cut::Client),
        }
        // More may have come while the server was waited for.
        if length == 0 && !has_more(&client.input, passing) {
            waited += wait((server, client), watch).await?;
        }
    }
    server.channel.flush().await.map_err(|_| Cut::Server)?;
    Ok(waited)
}

/// Whether something has come that can be passed on: of a packet that goes on, or of the next.
fn has_more(input: &[u8], passing: usize) -> bool {
    if passing > 0 { !input.is_empty() } else { codec::packet(input).is_some() }
}

/// Passes on an error that the server has told before it was lost. If the client was sending, its number is
/// that of an earlier packet, as without a gate.
pub(super) fn pass_last_word(server: &mut Server, client: &mut Channel) {
    let input = &server.channel.input;
    if let Some(packet) = codec::packet(input) {
        let whole = input.get(..packet.len());
        let error = whole.filter(|whole| whole.get(HEADER_LEN) == Some(&answer::ERROR));
        client.output.extend_from_slice(error.unwrap_or_default());
    }
}

/// Waits for more of the file. The server has nothing to say meanwhile, unless it ends.
async fn wait((server, client): (&mut Server, &mut Channel), watch: &mut Watch<'_>) -> Result<Duration, Cut> {
    let begun = Instant::now();
    let limit = watch.limit;
    let is_quiet = server.channel.input.is_empty();
    tokio::select! {
        biased;
        () = watch.ended() => return Err(Cut::Client),
        filled = timeout(limit, client.fill()) => match filled {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(Cut::Client),
        },
        filled = server.channel.fill_or_end(is_quiet) => filled.map_err(|_: Lost| Cut::Server)?,
    }
    Ok(begun.elapsed())
}
