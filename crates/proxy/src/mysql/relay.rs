//! The way of an answer from the server to the client: packets pass as they come, save those that carry
//! state.

use std::time::Duration;

use admission::Outcome;
use bytes::{Buf, Bytes};
use tokio::time::{Instant, sleep};
use wire::mysql::Fault;
use wire::mysql::ProtocolError;
use wire::mysql::answer::{OkPacket, Prepared, parse_ok, write_ok, write_prepared};
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::{self, HEADER_LEN, Sequence};
use wire::mysql::response::{Expect, Follower, PEEK, Part, Turn};

use super::carried::Carried;
use super::channel::{Channel, Lost, OUTPUT_MAX};
use super::classify::{Analysis, Explains, Pin};
use super::file::{self, Cut};
use super::kill::{Taker, Watch};
use super::results::Results;
use super::server::Server;
use super::track;

/// What InnoDB says to a session that waited for a lock: the wait took too long, or it was a deadlock.
const CONFLICTS: [u16; 2] = [1205, 1213];
/// The longest OK packet, in bytes: it may hold the values of many variables.
const OK_MAX: usize = 1 << 20;

/// How long after a KILL the statement is killed again if it hasn't ended.
const KILL_AGAIN: Duration = Duration::from_secs(1);

/// What an answer told.
#[derive(Default)]
pub(super) struct Answer {
    /// The status that came last; `None` after an error.
    pub(super) status: Option<Status>,
    /// The code of the error that ended it.
    pub(super) error: Option<u16>,
    pub(super) told: track::Told,
    /// There are warnings to be shown, or an error.
    pub(super) warned: bool,
    /// An id was generated.
    pub(super) has_insert_id: bool,
    pub(super) prepared: Option<Prepared>,
    /// How long the client took to take it.
    pub(super) client_time: Duration,
    pub(super) client: Taker,
}

/// Why an answer didn't come to its end.
pub(super) enum Broken {
    /// The server's connection; the client has got nothing of the answer.
    Before(Lost),
    /// The server's connection, where an answer with this number was due: what the client has got before is
    /// whole.
    Unanswered(Lost, Sequence),
    /// The server's connection, in the middle of the answer.
    Within,
    /// The client has left in the middle of its file.
    Client,
}

impl Broken {
    /// Why an error is owed to the client, and its number, which is `first` as long as nothing was told.
    pub(super) fn owed(&self, first: Sequence) -> Option<(&Lost, Sequence)> {
        match self {
            Self::Before(lost) => Some((lost, first)),
            Self::Unanswered(lost, due) => Some((lost, *due)),
            Self::Within | Self::Client => None,
        }
    }
}

/// Passes an answer on. A client that takes nothing any more doesn't keep the answer from being read to its
/// end, but the statement is killed. `statement` is the id by which the client will know a statement that is
/// prepared; `analysis` is of the text that is answered.
pub(super) async fn relay(
    (server, client): (&mut Server, &mut Channel),
    (expect, due): (Expect, Sequence),
    (capabilities, statement): (Capabilities, u32),
    (carried, analysis): (&mut Carried, &Analysis),
    mut watch: Watch<'_>,
) -> Result<Answer, Broken> {
    let mut follower = Follower::new(expect, server.capabilities, due);
    let mut answer = Answer::default();
    // The number of an error that can be told now; `None`: the client has got a part of an answer.
    let mut owed = Some(due);
    let mut passing = 0_usize;
    loop {
        let pass = passing.min(server.channel.input.len());
        client.output.extend_from_slice(&server.channel.input.split_to(pass));
        passing -= pass;
        if client.output.len() >= OUTPUT_MAX && answer.client == Taker::There {
            let begun = Instant::now();
            answer.client = watch.flush(client).await;
            answer.client_time += begun.elapsed();
            if answer.client == Taker::Left {
                watch.kill().await;
            }
        }
        if answer.client == Taker::Left {
            client.output.clear();
        }
        let broken = move |lost: Lost| owed.map_or(Broken::Within, |due| Broken::Unanswered(lost, due));
        if passing == 0 {
            match follower.turn() {
                Turn::Server => {}
                Turn::Client if answer.client == Taker::Left => return Err(Broken::Client),
                Turn::Client => {
                    let passed = file::pass((&mut *server, &mut *client), &mut follower, &mut watch).await;
                    answer.client_time += passed.map_err(|cut| match cut {
                        Cut::Client => Broken::Client,
                        Cut::Server => {
                            file::pass_last_word(server, client);
                            Broken::Within
                        }
                    })?;
                    owed = Some(follower.due());
                    continue;
                }
                Turn::Over => break,
            }
            match step(&server.channel.input, server.capabilities, &mut follower).map_err(&broken)? {
                Step::Wait => {}
                Step::Pass(length, part) => {
                    owed = None;
                    match part {
                        Part::Error { code } => {
                            (answer.error, answer.status, answer.warned) = (Some(code), None, true);
                        }
                        Part::Eof(status) => {
                            answer.status = Some(status);
                            let warnings = server.channel.input.get(HEADER_LEN + 1..HEADER_LEN + 3);
                            answer.warned |= warnings.is_some_and(|count| count != [0, 0]);
                        }
                        Part::Switch | Part::More => return Err(Broken::Within),
                        _ => {}
                    }
                    passing = length;
                    continue;
                }
                Step::Whole(packet, sequence, part) => {
                    owed = None;
                    let length = packet.len() + HEADER_LEN;
                    if let Part::Prepared(prepared) = part {
                        answer.prepared = Some(prepared);
                        write_prepared(&mut client.output, sequence, Prepared { statement, ..prepared });
                    } else {
                        let own = server.capabilities;
                        let ok = parse_ok(&packet, own).map_err(|_| Broken::Within)?;
                        answer.note(&ok, carried, analysis);
                        let header = packet.first().copied().unwrap_or_default();
                        let ok = OkPacket { changes: wire::mysql::track::Changes::default(), ..ok };
                        write_ok(&mut client.output, sequence, (header, capabilities), &ok);
                    }
                    server.channel.input.advance(length);
                    continue;
                }
            }
        }
        tokio::select! {
            biased;
            filled = server.channel.fill() => filled.map_err(broken)?,
            () = watch.left(client), if answer.client == Taker::There => {
                answer.client = Taker::Left;
                watch.kill().await;
            }
            // A KILL that comes before the statement has begun hits nothing.
            () = sleep(KILL_AGAIN), if answer.client == Taker::Left => watch.kill().await,
        }
    }
    Ok(answer)
}

impl Answer {
    /// The results that a text has replaced. Warnings and errors replace those before.
    pub(super) fn renewed(&self, analysis: &Analysis) -> Results {
        let own = if self.error.is_some() { Results::default() } else { analysis.renews };
        let own = own.with(self.told.results);
        if self.warned { own.with(Results::WARNINGS) } else { own }
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self.error {
            None => Outcome::Success,
            Some(code) if CONFLICTS.contains(&code) => Outcome::Conflict,
            Some(_) => Outcome::Failure,
        }
    }

    /// Why the session keeps its connection from here on. What the server tells of only behind the answer
    /// binds the session as well. What a routine has left before it failed isn't told.
    pub(super) fn pin(&self, analysis: &Analysis) -> Option<Pin> {
        let told = self.told.pin.filter(|pin| !analysis.tracking || *pin != Pin::Other);
        let failed = self.error.is_some();
        let is_untold = failed && (analysis.explains == Explains::Routine || self.told.variable);
        told.or(is_untold.then_some(Pin::Routine))
    }

    fn note(&mut self, ok: &OkPacket<'_>, carried: &mut Carried, analysis: &Analysis) {
        self.status = Some(ok.status);
        self.has_insert_id |= ok.last_insert_id > 0;
        self.warned |= ok.warnings > 0;
        self.told.add(&track::apply(ok.changes, carried, analysis));
    }
}

enum Step {
    /// More has to come.
    Wait,
    /// This many bytes are passed on.
    Pass(usize, Part),
    /// The payload of a packet that carries state.
    Whole(Bytes, Sequence, Part),
}

/// Looks at the packet that comes next.
fn step(input: &[u8], capabilities: Capabilities, follower: &mut Follower) -> Result<Step, Lost> {
    let Some(packet) = codec::packet(input) else { return Ok(Step::Wait) };
    let seen = packet.payload_len.min(PEEK);
    let Some(head) = input.get(HEADER_LEN..HEADER_LEN + seen) else { return Ok(Step::Wait) };
    // What a packet is can be asked once only. So the question is put to a copy until the packet is there.
    let mut asked = follower.clone();
    let part = asked.server(packet, head)?;
    let carries = match part {
        Part::Ok(_) => capabilities.contains(Capabilities::SESSION_TRACK),
        Part::Prepared(_) => true,
        _ => false,
    };
    if carries {
        if packet.payload_len > OK_MAX {
            let fault = Fault::TooLong { length: packet.payload_len, max: OK_MAX };
            return Err(ProtocolError::Server(fault).into());
        }
        let Some(payload) = packet.payload(input) else { return Ok(Step::Wait) };
        *follower = asked;
        return Ok(Step::Whole(Bytes::copy_from_slice(payload), packet.sequence, part));
    }
    *follower = asked;
    Ok(Step::Pass(packet.len(), part))
}
