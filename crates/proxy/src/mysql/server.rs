//! A connection to the server: login, and how it is brought to a session's state.
//!
//! A connection remembers which session used it last, and at which point of that session's life. A session
//! that finds itself there goes on. For any other the connection is reset (COM_RESET_CONNECTION), and gets
//! the session's variables, database and `LAST_INSERT_ID()`, all in one round trip.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::BytesMut;
use tokio::time::Instant;
use wire::mysql::answer;
use wire::mysql::authentication::{MAX_STEP, Step, parse_step};
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::{self, Sequence};
use wire::mysql::command::{self, Command, Query};
use wire::mysql::handshake::{Greeting, Handshake, Response, parse_greeting, write_response};
use wire::mysql::response::{Expect, Follower, PEEK, Part, Turn};
use wire::mysql::scramble::{caching_sha2, ed25519, native};

use super::Shared;
use super::carried::{Carried, Surroundings};
use super::channel::{Channel, Lost, MESSAGE_MAX};
use super::greeting::{Failed, UTF8MB4, Way, encrypt, greeted, known, refused, unreachable};
use super::left::Left;
use super::opening::Opening;
use super::place::Place;
use super::reject::Refusal;
use super::rsa;
use super::users::Credential;
use crate::stream::Stream;
use crate::tls::Connector;

/// The largest answer to a command of the gate's own, in bytes.
pub(super) const OWN_ANSWER_MAX: usize = 1 << 20;
/// What has the server tell every change of a session.
const TRACK: &str = "SET SESSION session_track_system_variables='*', session_track_schema=1, \
                     session_track_state_change=1";

/// The plug-in before `caching_sha2_password`, which asks for the password at each login.
const SHA256: &[u8] = b"sha256_password";
/// Its request for the public key.
const ASK_SHA256: u8 = 1;

/// Spaces before parentheses (`CLIENT_IGNORE_SPACE`). A server makes a mode of it at login only.
pub(super) const IGNORE_SPACE: Capabilities = Capabilities(1 << 8);

/// What connections have in common that can stand in for one another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) user: Vec<u8>,
    /// What changes the layout of packets, or the meaning of answers.
    pub(super) layout: Capabilities,
    pub(super) collation: u16,
}

impl Key {
    /// COM_SET_OPTION has run. No reset undoes it, so other connections of its session are to be so, too.
    pub(super) fn allow_several(&mut self, option: u16) {
        let several = Capabilities::MULTI_STATEMENTS;
        match option {
            0 => self.layout = self.layout | several,
            1 => self.layout = Capabilities(self.layout.0 & !several.0),
            _ => {}
        }
    }

    /// The collation of the login. One beyond a byte is set behind that.
    fn collation_of_login(&self) -> u8 {
        u8::try_from(self.collation).unwrap_or(UTF8MB4)
    }
}

/// The session of a connection that nobody has used since its reset.
pub(super) const NOBODY: u64 = 0;

/// A point in a session's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Point {
    /// The session; no session has 0.
    pub(super) session: u64,
    /// Changes of the session's state.
    pub(super) version: u64,
    /// Commands that have run.
    pub(super) commands: u64,
}

/// Whether the server has taken a session's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The session logs in: the server has to say whether the user may.
    Due,
    Given,
}

/// A thread of a server: its id there, and the way to that server.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) id: u32,
    pub(super) way: Way,
}

/// A server that has greeted.
pub(super) struct Reached<'a> {
    pub(super) way: &'a Way,
    pub(super) tls: Option<&'a Connector>,
    pub(super) channel: Channel,
    pub(super) handshake: &'a Handshake<'a>,
    /// What it must be capable of beside the rest.
    pub(super) needed: Capabilities,
}

/// A connection to the server.
pub(super) struct Server {
    pub(super) channel: Channel,
    pub(super) key: Key,
    pub(super) capabilities: Capabilities,
    /// What a KILL names.
    pub(super) thread: Thread,
    pub(super) at: Point,
    pub(super) database: Vec<u8>,
    /// The prepared statements of the session at `at`: the session's ids and the server's.
    pub(super) statements: HashMap<u32, u32>,
    pub(super) left: Left,
    /// The answers to commands of the gate's own that haven't been read yet.
    pub(super) due: usize,
    /// The state of the connection once the answers that are due have been read: the point of a session's
    /// life, with its database.
    pub(super) pending: Option<(Point, Vec<u8>)>,
    /// Since when it exists.
    pub(super) connected: SystemTime,
    /// When the server took the user's proof last.
    pub(super) proved: Instant,
    pub(super) place: Place,
}

impl Server {
    /// Connects and logs in.
    pub(super) async fn login(
        (shared, way): (&Shared, &Way),
        key: &Key,
        credential: &Credential,
        place: Place,
    ) -> Result<Self, Failed> {
        let limit = shared.settings().login_timeout;
        tokio::time::timeout(limit, Self::try_login((shared, way), key, credential, place))
            .await
            .unwrap_or(Err(Failed::Lost(Lost::Late)))
    }

    async fn try_login(
        (shared, way): (&Shared, &Way),
        key: &Key,
        credential: &Credential,
        place: Place,
    ) -> Result<Self, Failed> {
        let (channel, greeting) = greeted(shared, way).await?;
        let Greeting::Handshake(handshake) = parse_greeting(&greeting)? else {
            return Err(refused(&greeting));
        };
        if shared.pool.is_current(&place) {
            *shared.known.write() = Some(Arc::new(known(&handshake)));
        }
        let settings = shared.settings();
        let tls = settings.upstream_tls.as_deref();
        let reached =
            Reached { way, tls, channel, handshake: &handshake, needed: Capabilities::SESSION_TRACK };
        Self::enter(reached, key, credential, place).await
    }

    /// Logs in at a server that has greeted.
    pub(super) async fn enter(
        Reached { way, tls, mut channel, handshake, needed }: Reached<'_>,
        key: &Key,
        credential: &Credential,
        place: Place,
    ) -> Result<Self, Failed> {
        let needed = needed | Capabilities::PLUGIN_AUTH | key.layout;
        if !handshake.capabilities.contains(needed) {
            return Err(unreachable(&"the server lacks capabilities that it had, or session tracking"));
        }
        let capabilities = needed
            | Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | (handshake.capabilities & Capabilities::PLUGIN_AUTH_LENENC);
        let (mut sequence, collation) = (Sequence(1), key.collation_of_login());
        channel = encrypt((tls, way), channel, handshake, (capabilities, collation), &mut sequence).await?;
        let plugin = if handshake.plugin.is_empty() { native::NAME.as_bytes() } else { handshake.plugin };
        let proof = prove(credential, (plugin, &handshake.scramble));
        // A plug-in that the gate doesn't know: the server will name another, or the failure will be told
        // then.
        let (plugin, proof) = proof.map_or((native::NAME.as_bytes(), Vec::new()), |proof| (plugin, proof));
        let response = Response {
            capabilities,
            max_packet: MESSAGE_MAX as u32,
            collation,
            user: &key.user,
            proof: &proof,
            database: None,
            plugin,
            attributes: None,
            zstd_level: None,
        };
        write_response(&mut channel.output, sequence, &response);
        channel.flush().await?;
        steps(&mut channel, key, credential, &handshake.scramble).await?;
        let peer = channel.stream.peer_address();
        let thread = Thread { id: handshake.connection, way: Way { peer, ..way.clone() } };
        let mut server = Self {
            channel,
            key: key.clone(),
            capabilities,
            thread,
            // `init_connect` has run: a reset undoes what it has set, here as on a used connection.
            at: Point { session: u64::MAX, ..Point::default() },
            database: Vec::new(),
            statements: HashMap::new(),
            left: Left::default(),
            due: 0,
            pending: None,
            connected: SystemTime::now(),
            proved: Instant::now(),
            place,
        };
        if u16::from(collation) != key.collation {
            server.try_change_user(credential).await?;
        }
        Ok(server)
    }

    /// Brings the connection to a session's state, and begins its transaction if that was put off. After a
    /// failure nothing is known of the connection: it must be closed.
    pub(super) async fn restore(
        &mut self,
        (carried, proof): (&Carried, Proof),
        at: Point,
        opening: &Opening,
    ) -> Result<(), Failed> {
        // A client names its database at login in its own character set. Servers tell names in UTF-8.
        let is_utf8 = self.is_at(at) || carried.database.is_ascii() || proof == Proof::Due;
        let login = if is_utf8 { None } else { Some(self.names_of_login().await?) };
        self.put_restore(carried, login.as_deref(), at);
        for sql in opening.texts() {
            self.due += self.put(&Command::Query(Query { attributes: &[], sql }));
        }
        self.settle().await
    }

    fn is_at(&self, at: Point) -> bool {
        self.at.session == at.session && self.at.version == at.version
    }

    /// Whether what brings the connection to a session's state can go in one flight with the statement behind
    /// it: nothing of it can fail so that the statement would mean something else.
    pub(super) fn restores_surely(&self, carried: &Carried) -> bool {
        self.due == 0
            && carried.variables.is_empty()
            && carried.database.is_ascii()
            && carried.database == self.database
    }

    /// Appends what brings the connection to a session's state. The answers are due.
    pub(super) fn put_restore(&mut self, carried: &Carried, login: Option<&str>, at: Point) {
        if !self.is_at(at) {
            if self.at != Point::default() {
                self.put_reset();
            }
            if login.is_some() {
                self.due += self.put(&Command::Query(Query { attributes: &[], sql: b"SET NAMES utf8mb4" }));
            }
            // A reset leaves the database, but not its character set.
            if !carried.database.is_empty() {
                self.due += self.put(&Command::InitDb { database: &carried.database });
            }
            if let Some(names) = login {
                self.due += self.put(&Command::Query(Query { attributes: &[], sql: names.as_bytes() }));
            }
            let set = settings(carried, &self.key);
            self.due += self.put(&Command::Query(Query { attributes: &[], sql: set.as_bytes() }));
            self.statements.clear();
            let is_shared = super::track::is_shared(&carried.variables, self.key.collation);
            self.left.renew(is_shared.then_some(&carried.variables), carried.insert_id);
        }
        // Until all is done nobody's state is there.
        self.at = Point { session: u64::MAX, ..at };
        self.pending = Some((at, carried.database.clone()));
    }

    /// Reads the answers to what brings the connection to a session's state, if there are any to come.
    pub(super) async fn settle(&mut self) -> Result<(), Failed> {
        let Some((at, database)) = self.pending.take() else { return Ok(()) };
        self.channel.flush().await?;
        let mut failed = None;
        for _ in 0..std::mem::take(&mut self.due) {
            let message = self.channel.server_message(OWN_ANSWER_MAX).await?;
            if message.payload.first() == Some(&answer::ERROR) {
                failed.get_or_insert(refused(&message.payload));
            }
        }
        if let Some(failed) = failed {
            return Err(failed);
        }
        (self.at, self.database) = (at, database);
        Ok(())
    }

    /// Appends the reset of a statement, before a command of the same session.
    pub(super) fn put_reset_statement(&mut self, statement: u32) {
        self.due += self.put(&Command::ResetStatement { statement });
        if self.pending.is_none() {
            self.pending = Some((self.at, self.database.clone()));
        }
    }

    /// Appends a reset of the connection. Its answer is due.
    pub(super) fn put_reset(&mut self) {
        self.place.session_changes.reset();
        self.due += self.put(&Command::ResetConnection);
    }

    /// Appends a command of the gate's own, which has one answer.
    pub(super) fn put(&mut self, command: &Command<'_>) -> usize {
        command::write(&mut self.channel.output, command, self.capabilities);
        1
    }

    /// The status of the session, asked for because an error doesn't tell it.
    pub(super) async fn status(&mut self) -> Result<Status, Failed> {
        self.put(&Command::Ping);
        self.channel.flush().await?;
        let message = self.channel.server_message(OWN_ANSWER_MAX).await?;
        Ok(answer::parse_ok(&message.payload, self.capabilities)?.status)
    }

    /// Has the server tell every change again, after the session has asked for less.
    pub(super) async fn track(&mut self) -> Result<(), Failed> {
        self.run(&Command::Query(Query { attributes: &[], sql: TRACK.as_bytes() })).await
    }

    /// Runs a command of the gate's own, which has one answer.
    pub(super) async fn run(&mut self, command: &Command<'_>) -> Result<(), Failed> {
        self.put(command);
        self.channel.flush().await?;
        let message = self.channel.server_message(OWN_ANSWER_MAX).await?;
        if message.payload.first() == Some(&answer::ERROR) { Err(refused(&message.payload)) } else { Ok(()) }
    }

    /// `LAST_INSERT_ID()`, for the day when the session goes on elsewhere.
    pub(super) async fn insert_id(&mut self) -> Result<u64, Failed> {
        let digits = self.value("LAST_INSERT_ID()").await?;
        let id = std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok());
        id.ok_or_else(|| unreachable(&"the server has told no number"))
    }

    /// A short value, in UTF-8 whatever the session's character sets are; empty if it is NULL. The session's
    /// `sql_select_limit` doesn't hold for a query with a limit of its own.
    pub(super) async fn value(&mut self, of: &str) -> Result<Vec<u8>, Failed> {
        let sql = format!("SELECT CAST(CONVERT({of} USING utf8mb4) AS BINARY) LIMIT 1");
        self.put(&Command::Query(Query { attributes: &[], sql: sql.as_bytes() }));
        let mut found = None;
        self.follow(Expect::Results, Sequence(1), |part, payload| {
            if part == Part::Row {
                found = payload.get(1..).map(<[u8]>::to_vec);
            }
        })
        .await?;
        found.ok_or_else(|| unreachable(&"the server has told no value"))
    }

    /// Runs a query of the gate's own, and hands on each row with how many values it has.
    pub(super) async fn rows(&mut self, sql: &str, mut each: impl FnMut(usize, &[u8])) -> Result<(), Failed> {
        self.put(&Command::Query(Query { attributes: &[], sql: sql.as_bytes() }));
        let mut columns = 0;
        self.follow(Expect::Results, Sequence(1), |part, payload| match part {
            Part::Column => columns += 1,
            Part::Row => each(columns, payload),
            _ => {}
        })
        .await
    }

    /// Sends what was put, and hands on the parts of the answer. An error of the server's ends it.
    async fn follow(
        &mut self,
        expect: Expect,
        due: Sequence,
        mut each: impl FnMut(Part, &[u8]),
    ) -> Result<(), Failed> {
        self.channel.flush().await?;
        let mut follower = Follower::new(expect, self.capabilities, due);
        while follower.turn() == Turn::Server {
            let message = self.channel.server_message(OWN_ANSWER_MAX).await?;
            let packet = codec::Packet { sequence: message.sequence, payload_len: message.payload.len() };
            let head = message.payload.get(..PEEK).unwrap_or(&message.payload);
            match follower.server(packet, head)? {
                Part::Error { .. } => return Err(refused(&message.payload)),
                part => each(part, &message.payload),
            }
        }
        Ok(())
    }

    /// Prepares a session's statement again, in the surroundings of its first time; returns the server's id.
    /// `now` is what the session has now.
    pub(super) async fn prepare_again(
        &mut self,
        (id, sql, then): (u32, &[u8], &Surroundings),
        now: &Surroundings,
    ) -> Result<u32, Failed> {
        if now != then {
            self.left.spoil();
        }
        let prepared = match self.surround(now, then).await {
            Ok(()) => self.prepare(id, sql).await,
            Err(failed) => Err(failed),
        };
        match self.surround(then, now).await {
            Ok(()) => prepared,
            // Nobody may go on in another database than the session's.
            Err(Failed::Refused(_)) => Err(Lost::Displaced.into()),
            Err(lost) => Err(lost),
        }
    }

    /// Goes from one surrounding to another.
    async fn surround(&mut self, from: &Surroundings, to: &Surroundings) -> Result<(), Failed> {
        // From a database there is no way back to none.
        if from.database != to.database && !from.database.is_empty() && !to.database.is_empty() {
            self.run(&Command::InitDb { database: &to.database }).await?;
        }
        if from.mode != to.mode {
            let mode = to.mode.as_ref().and_then(|mode| super::track::assignment(b"sql_mode", mode));
            let sql = format!("SET SESSION {}", mode.as_deref().unwrap_or(modes_at_login(&self.key)));
            self.run(&Command::Query(Query { attributes: &[], sql: sql.as_bytes() })).await?;
        }
        Ok(())
    }

    /// Writes the preparing of a text; returns the number of its answer.
    pub(super) async fn put_prepare(&mut self, sql: &[u8]) -> Result<Sequence, Lost> {
        let mut head = BytesMut::new();
        command::put(&mut head, &Command::Prepare { sql: &[] }, self.capabilities);
        self.channel.put_command(&[&head, sql]).await
    }

    /// Prepares a session's statement here; returns the server's id.
    async fn prepare(&mut self, statement: u32, sql: &[u8]) -> Result<u32, Failed> {
        let next = self.put_prepare(sql).await?;
        let mut id = None;
        self.follow(Expect::Prepared, next, |part, _| {
            if let Part::Prepared(prepared) = part {
                id = Some(prepared.statement);
            }
        })
        .await?;
        let id = id.ok_or(Lost::Closed)?;
        self.statements.insert(statement, id);
        self.left.prepared(sql, id);
        Ok(id)
    }
}

/// The assignment that gives a session the modes of its login, which a reset has changed.
fn modes_at_login(key: &Key) -> &'static str {
    if key.layout.contains(IGNORE_SPACE) {
        "sql_mode=CONCAT(@@global.sql_mode, ',IGNORE_SPACE')"
    } else {
        "sql_mode=DEFAULT"
    }
}

/// The statement that sets what a session has set.
fn settings(carried: &Carried, key: &Key) -> String {
    let mut set = TRACK.to_owned();
    if key.layout.contains(IGNORE_SPACE) && !carried.variables.contains_key(&b"sql_mode"[..]) {
        set.push_str(", ");
        set.push_str(modes_at_login(key));
    }
    let names = super::track::names(&carried.variables);
    set.push_str(names.as_deref().unwrap_or_default());
    for (name, value) in &carried.variables {
        if names.is_some() && super::track::is_of_names(name) {
            continue;
        }
        if let Some(assignment) = super::track::assignment(name, value) {
            set.push_str(", ");
            set.push_str(&assignment);
        }
    }
    if carried.insert_id > 0 {
        set.push_str(&format!(", last_insert_id={}", carried.insert_id));
    }
    set
}

/// The proof for a scramble; `None`: the plug-in isn't known, or what is known of the password isn't enough.
fn prove(credential: &Credential, (plugin, scramble): (&[u8], &[u8])) -> Option<Vec<u8>> {
    let short = scramble.get(..20).unwrap_or(scramble);
    Some(match (credential, plugin) {
        (Credential::Nothing, b"mysql_native_password" | b"caching_sha2_password") => Vec::new(),
        (Credential::Nothing, SHA256) => vec![0],
        (Credential::Key(known), b"mysql_native_password") => native::prove(known, short).to_vec(),
        (Credential::Password(password), b"mysql_native_password") => {
            native::prove(&native::key(password), short).to_vec()
        }
        (Credential::Password(password), b"caching_sha2_password") => {
            caching_sha2::prove(&caching_sha2::key(password), short).to_vec()
        }
        (Credential::Password(password), b"client_ed25519") => ed25519::prove(password, scramble).to_vec(),
        _ => return None,
    })
}

/// The rest of the login, up to OK. `scramble` came with the greeting.
pub(super) async fn steps(
    channel: &mut Channel,
    key: &Key,
    credential: &Credential,
    scramble: &[u8],
) -> Result<(), Failed> {
    /// The most steps of a login.
    const STEPS_MAX: usize = 8;
    let mut scramble = scramble.to_vec();
    // An account may have several ways to log in, which the server asks for in turn.
    let mut unproved = None;
    let (mut plugin, is_tcp) =
        (caching_sha2::NAME.as_bytes().to_vec(), matches!(channel.stream, Stream::Tcp(_)));
    for _ in 0..STEPS_MAX {
        let message = channel.server_message(MAX_STEP).await?;
        let step = parse_step(&message.payload)?;
        if let Step::Switch { plugin: to, data } = step {
            (plugin, scramble) = (to.to_vec(), data.to_vec());
        }
        let asks_password =
            matches!(step, Step::Switch { plugin: SHA256, .. } | Step::More([caching_sha2::FULL]));
        let answer = match (step, credential) {
            (Step::Ok, _) => return Ok(()),
            (Step::Error(error), _) => {
                return Err(unproved.unwrap_or_else(|| Failed::Refused(Refusal::of_server(&error))));
            }
            (Step::More([caching_sha2::FAST]), _) => continue,
            (_, Credential::Password(password)) if asks_password && !is_tcp => {
                caching_sha2::in_clear(password)
            }
            (Step::Switch { .. }, Credential::Password(_)) if asks_password => vec![ASK_SHA256].into(),
            (_, Credential::Password(_)) if asks_password => vec![caching_sha2::ASK_FOR_KEY].into(),
            (Step::Switch { plugin, data }, _) => {
                let proof = prove(credential, (plugin, data));
                unproved = proof.is_none().then(|| no_proof(key, plugin, credential));
                proof.unwrap_or_default().into()
            }
            (Step::More(pem), Credential::Password(password)) if pem.starts_with(b"-----BEGIN") => {
                let sent = rsa::encrypt((channel.stream.peer(), pem), password, &scramble);
                sent.map_err(|error| not_encrypted(key, &error))?.into()
            }
            (Step::More(_), _) => return Err(no_proof(key, &plugin, credential)),
        };
        codec::write(&mut channel.output, message.next, &answer);
        channel.flush().await?;
    }
    Err(Failed::Lost(Lost::Closed))
}

fn not_encrypted(key: &Key, error: &rsa::Unencrypted) -> Failed {
    let user = String::from_utf8_lossy(&key.user);
    unreachable(&format!(
        "the server asks for the password of '{user}' itself, and {error}; set upstream_tls_mode = \"verify-full\" \
         with upstream_tls_ca, the certificate that signs the server's"
    ))
}

fn no_proof(key: &Key, plugin: &[u8], credential: &Credential) -> Failed {
    let (user, plugin) = (String::from_utf8_lossy(&key.user), String::from_utf8_lossy(plugin));
    let advice = match credential {
        Credential::Key(_) => {
            "write the password itself into users_file, or have the user use mysql_native_password"
        }
        Credential::Nothing => "users_file says that the user has no password: write it there",
        Credential::Password(_) => {
            "have the user use mysql_native_password, caching_sha2_password or ed25519"
        }
    };
    unreachable(&format!(
        "the server asks for {plugin} of user '{user}', which the gate can't prove: {advice}"
    ))
}
