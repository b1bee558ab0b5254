//! What a session's client sends, gathered into units: a simple Query, or an extended batch up to its Sync or
//! Flush, or to where the client pauses.
//!
//! A message that is awaited whole may take as much time and memory as the configuration allows. A message
//! without room is answered with an error at once, and the rest of it is dropped.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::time::Instant;
use wire::postgres::backend;
use wire::postgres::codec::{Frame, HEADER_LEN, frontend_frame};
use wire::postgres::frontend;

use super::batch::Until;
use super::channel::Rest;
use super::classify::Analysis;
use super::exchange::Exchange;
use super::forward::{MESSAGE_MAX, PAUSE};
use super::leave::{farewell, watch};
use super::reject::Refusal;
use super::session::{Flow, Session};
use crate::shutdown::Phase;

/// The longest batch that is held back until its Sync. A longer one is sent in parts.
const BATCH_MAX: usize = 1024 * 1024;

/// What the client wants next; lengths in bytes at the front of its input.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Query {
        length: usize,
    },
    /// Extended messages.
    Batch {
        length: usize,
        until: Until,
    },
    Function {
        length: usize,
    },
    /// A message of this type has begun and has no room.
    TooMuch {
        tag: u8,
        length: usize,
    },
}

/// What came of waiting for the client.
enum Waited {
    Heard,
    /// The client has paused within its batch.
    Paused,
}

/// What becomes of a message that has partly arrived.
enum Part {
    Awaited,
    /// The message is ignored.
    Dropped,
    TooLarge,
    /// The message has no room.
    TooMuch,
}

impl Session {
    /// Gathers the next unit. An error ends the session, with a last word or without.
    pub(super) async fn next_unit(&mut self) -> Result<Unit, Option<Refusal>> {
        self.client.release_taken();
        let (mut scanned, mut rest_by) = (0, None);
        loop {
            let violation =
                |error: wire::postgres::ProtocolError| Some(Refusal::protocol_violation(&error.to_string()));
            let frame = frontend_frame(&self.client.input[scanned..]).map_err(violation)?;
            let Some(frame) = frame.filter(|frame| scanned + frame.len <= self.client.input.len()) else {
                if let Some(Frame { tag, len: length }) = frame {
                    match self.judge_part(tag, length) {
                        Part::Awaited => {
                            rest_by.get_or_insert_with(|| Instant::now() + self.message_max());
                        }
                        Part::Dropped => {
                            self.client.drop_message(length);
                            continue;
                        }
                        Part::TooLarge => return Err(Some(Refusal::message_too_large(length, MESSAGE_MAX))),
                        Part::TooMuch if scanned > 0 => {
                            return Ok(Unit::Batch { length: scanned, until: Until::More });
                        }
                        Part::TooMuch => return Ok(Unit::TooMuch { tag, length }),
                    }
                }
                match self.wait_for_client(scanned, rest_by.filter(|_| frame.is_some())).await? {
                    Waited::Heard => continue,
                    Waited::Paused if self.transaction.is_open() => {
                        return Ok(Unit::Batch { length: scanned, until: Until::More });
                    }
                    Waited::Paused => return Ok(Unit::Batch { length: scanned, until: Until::Pause }),
                }
            };
            let length = scanned + frame.len;
            match frame.tag {
                b'X' => {
                    self.terminated = true;
                    return Err(None);
                }
                b'S' if self.skipping => {
                    if let Err(error) = frontend::parse(b'S', &self.client.input[HEADER_LEN..length]) {
                        Refusal::malformed(&error).write(&mut self.client.output);
                    }
                    self.client.input.advance(length);
                    self.skipping = false;
                    backend::write_ready(&mut self.client.output, self.transaction.status());
                }
                _ if self.skipping => self.client.input.advance(length),
                // Copy messages after a COPY has failed, as the protocol allows.
                b'd' | b'c' | b'f' if scanned == 0 => self.client.input.advance(length),
                // Copy data may be long: they pass as they come.
                b'Q' | b'F' | b'd' | b'c' | b'f' if scanned > 0 => {
                    return Ok(Unit::Batch { length: scanned, until: Until::More });
                }
                b'Q' => return Ok(Unit::Query { length }),
                b'F' => return Ok(Unit::Function { length }),
                b'S' => return Ok(Unit::Batch { length, until: Until::Sync }),
                b'H' => return Ok(Unit::Batch { length, until: Until::Flush }),
                b'p' => {
                    return Err(Some(Refusal::protocol_violation("a password message without a request")));
                }
                _ if length > BATCH_MAX => return Ok(Unit::Batch { length, until: Until::More }),
                _ => scanned = length,
            }
        }
    }

    /// Decides about a message that has partly arrived behind the gathered ones.
    fn judge_part(&self, tag: u8, length: usize) -> Part {
        // What is copied behind a COPY that has failed is ignored, as is what follows an error up to a Sync.
        let is_ignored = self.skipping && tag != b'S';
        if is_ignored {
            Part::Dropped
        } else if length > MESSAGE_MAX {
            Part::TooLarge
        } else if self.client.has_no_room(length) {
            Part::TooMuch
        } else {
            Part::Awaited
        }
    }

    /// Answers a message that has no room with an error, and drops what comes of it. Within a transaction the
    /// server has to fail too.
    pub(super) async fn serve_too_much(&mut self, tag: u8, length: usize) -> Flow {
        self.client.drop_message(length);
        let refusal = Refusal::no_memory(length);
        let synced = match tag {
            // Behind a COPY that has failed they are ignored.
            b'd' => return Flow::Continue,
            tag => matches!(tag, b'Q' | b'F'),
        };
        if !self.transaction.is_open() {
            return self.refuse(&refusal, synced);
        }
        if let Err(flow) = self.admit(&Analysis::prepare(), synced).await {
            return flow;
        }
        let exchange = Exchange::new(VecDeque::new(), &self.transaction);
        self.exchange(exchange, |exchange, _, out| {
            exchange.refuse_message(tag, refusal, out);
            Ok(BytesMut::new())
        })
        .await
    }

    fn message_max(&self) -> Duration {
        self.shared.settings().message_timeout
    }

    /// Waits for more of the client, while watching what else may happen. `gathered`: bytes of a batch that
    /// has begun. The rest of a message that has begun has to be there `by`.
    async fn wait_for_client(
        &mut self,
        gathered: usize,
        by: Option<Instant>,
    ) -> Result<Waited, Option<Refusal>> {
        self.client.flush().await;
        let is_idle = gathered == 0 && self.client.input.is_empty() && !self.transaction.is_open();
        let end = if is_idle { Phase::Draining } else { Phase::Aborting };
        self.to_server = BytesMut::new();
        let is_open = self.transaction.is_open();
        let pause = async {
            match gathered {
                0 => std::future::pending().await,
                _ if is_open => {}
                _ => tokio::time::sleep(PAUSE).await,
            }
        };
        let rest = by.map(|by| self.client.rest(by));
        let rest = async {
            match rest {
                Some(rest) => rest.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            there = self.client.fill() => if there { Ok(Waited::Heard) } else { Err(None) },
            () = self.ending.reached(end) => Err(Some(Refusal::shutting_down())),
            () = self.place.killed() => Err(Some(farewell(self.place.card.ends()))),
            said = watch(&mut self.server) => self.heard_while_idle(said).map(|()| Waited::Heard),
            () = pause => Ok(Waited::Paused),
            rest = rest => match rest {
                Rest::NoRoom => {
                    self.client.give_up();
                    Ok(Waited::Heard)
                }
                Rest::Late => Err(Some(Refusal::message_late(self.message_max()))),
            },
        }
    }
}
