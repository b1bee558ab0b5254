//! Where scripts are played: a PostgreSQL behind a gate, and one like it whose clients have a connection
//! each.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};

use crate::script::{Message, Script};
use crate::session::Session;
use crate::support::Gate;

/// The longest that an answer may take. Only a hang takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The patience while a script that differs is made shorter. Most of its parts hang, because the turn that
/// ended a wait was taken out.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);

/// What each script finds.
const CONTENTS: &str = "
    DROP SCHEMA IF EXISTS public, other CASCADE;
    DROP OWNED BY tenant;
    CREATE SCHEMA public;
    CREATE SCHEMA other;
    GRANT ALL ON SCHEMA public, other TO tenant;
    CREATE TABLE public.a (id int PRIMARY KEY, note text);
    CREATE TABLE public.b (id int PRIMARY KEY, note text);
    CREATE TABLE other.a (id int PRIMARY KEY, note text);
    INSERT INTO public.a VALUES (1, 'one'), (2, 'two');
    INSERT INTO public.b VALUES (1, 'eins');
    INSERT INTO other.a VALUES (1, 'other');
    CREATE TEXT SEARCH CONFIGURATION other.words (COPY = simple);
    GRANT ALL ON public.a, public.b, other.a TO tenant;";

/// What shows whose state a session sees, as one statement for an idle session.
const PROBE: &str = "SELECT
    (SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
        WHERE context IN ('user', 'superuser') AND name NOT LIKE '%.%'),
    coalesce(current_setting('app.tenant', true), ''), coalesce(current_setting('app.other', true), ''),
    current_user, session_user,
    (SELECT string_agg(c, ',' ORDER BY c) FROM pg_listening_channels() c),
    (SELECT string_agg(objid::text, ',' ORDER BY objid) FROM pg_locks
        WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
    (SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class
        WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r'),
    (SELECT string_agg(name, ',' ORDER BY name) FROM pg_prepared_statements WHERE from_sql),
    (SELECT string_agg(name, ',' ORDER BY name) FROM pg_cursors WHERE name <> ''),
    (SELECT string_agg(id || note, ',' ORDER BY id) FROM public.a)";

/// How many gates there are: with one connection, with two, and so on.
pub(crate) const GATES: usize = 3;

/// The name of each gate's role and database.
const NAMES: [&str; GATES] = ["one", "two", "three"];

/// Two servers that begin alike.
pub(crate) struct Servers {
    gated: PrivateServer,
    direct: PrivateServer,
}

static SERVERS: Mutex<Weak<Servers>> = Mutex::new(Weak::new());

/// The servers of the tests that run at the same time, gone with the last of them.
pub(crate) fn servers() -> Arc<Servers> {
    let mut shared = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let start = || {
            let options = PrivateServerOptions {
                authentication: Authentication::Trust,
                settings: vec![("max_prepared_transactions".to_owned(), "8".to_owned())],
                ..PrivateServerOptions::default()
            };
            let server = PrivateServer::start(&options).expect("PostgreSQL starts");
            server.psql("CREATE ROLE tenant; CREATE ROLE plain").expect("roles");
            for name in NAMES {
                let sql = format!(
                    "CREATE DATABASE {name}; CREATE ROLE {name} SUPERUSER LOGIN;
                     ALTER DATABASE {name} SET lock_timeout = '200ms'"
                );
                server.psql(&sql).expect("a database and its user");
            }
            server
        };
        let servers = Arc::new(Servers { gated: start(), direct: start() });
        *shared = Arc::downgrade(&servers);
        servers
    })
}

/// A gate with this number of connections, and a database of its own on both servers.
pub(crate) struct Stage {
    gate: Gate,
    name: &'static str,
    users: tempfile::TempDir,
    restorers: [Session; 2],
    servers: Arc<Servers>,
    connections: usize,
}

/// What the sessions of a script heard: a text for each.
pub(crate) type Heard = Vec<String>;

impl Stage {
    /// Starts a gate for scripts over this number of connections.
    pub(crate) fn new(connections: usize) -> Self {
        let servers = servers();
        let name = NAMES[connections - 1];
        let users = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(users.path().join("users"), format!("\"{name}\" \"\"\n")).expect("a users file");
        let owner_only = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        std::fs::set_permissions(users.path().join("users"), owner_only).expect("its permissions");
        let gate = start_gate(&servers, connections, &users);
        let restorers = [&servers.gated, &servers.direct]
            .map(|server| Session::login(server.port(), "postgres", name, PATIENCE));
        Self { gate, name, users, restorers, servers, connections }
    }

    /// Puts a new gate in the place of the old one: no connection is left of what was before.
    pub(crate) fn renew(&mut self) {
        self.gate = start_gate(&self.servers, self.connections, &self.users);
    }

    /// Plays a script on both sides; `None` if all sessions heard the same, else what each side's sessions
    /// heard.
    pub(crate) fn differs(&mut self, script: &Script, patience: Duration) -> Option<(Heard, Heard)> {
        for restorer in &mut self.restorers {
            restorer.heard.clear();
            restorer.say(&[Message::Query(CONTENTS.to_owned())]);
            assert!(!restorer.heard.concat().contains("E("), "{:?}", restorer.heard);
        }
        let (direct, played) = {
            let mut troupe = Troupe::enter(script, self.servers.direct.port(), self.name, patience);
            let played = troupe.play(script, None);
            (troupe.end(), played)
        };
        // The gate hasn't seen that the tables were made anew. What it knows of texts would count for a
        // minute.
        let mut witness = Session::login(self.gate.port(), self.name, self.name, patience);
        witness.say(&[Message::Query("COMMENT ON SCHEMA public IS 'made anew'".to_owned())]);
        drop(witness);
        let gated = {
            let mut troupe = Troupe::enter(script, self.gate.port(), self.name, patience);
            troupe.play(script, Some(&played));
            troupe.end()
        };
        (direct != gated).then_some((direct, gated))
    }

    /// Whether a script, alone on a new gate, still differs.
    pub(crate) fn still_differs(&mut self, script: &Script) -> bool {
        self.renew();
        self.differs(script, SHORT_PATIENCE).is_some()
    }

    pub(crate) fn log_tail(&self) -> String {
        self.gate.log_tail()
    }
}

fn start_gate(servers: &Servers, connections: usize, users: &tempfile::TempDir) -> Gate {
    let settings = [
        format!("connections = {connections}"),
        format!("pinned_max = {connections}"),
        "long_limit = 0".to_owned(),
        "auth = \"trust\"".to_owned(),
        format!("users_file = \"{}\"", users.path().join("users").display()),
    ];
    Gate::start(servers.gated.port(), &settings)
}

/// The sessions of a script on one side.
struct Troupe {
    sessions: Vec<Session>,
    pinned: Vec<bool>,
    connections: usize,
    door: (u16, &'static str, Duration),
}

impl Troupe {
    fn enter(script: &Script, port: u16, name: &'static str, patience: Duration) -> Self {
        let sessions: Vec<_> =
            (0..script.sessions()).map(|_| Session::login(port, name, name, patience)).collect();
        let pinned = vec![false; sessions.len()];
        Self { sessions, pinned, connections: script.connections, door: (port, name, patience) }
    }

    /// Plays the turns that find a connection free (or those that `played` says), and says which these were.
    fn play(&mut self, script: &Script, played: Option<&[bool]>) -> Vec<bool> {
        let mut done = Vec::with_capacity(script.turns.len());
        for (index, turn) in script.turns.iter().enumerate() {
            let plays = played.map_or_else(|| self.may_play(turn), |played| played[index]);
            done.push(plays);
            if !plays || self.sessions[turn.session].is_over() {
                continue;
            }
            if turn.messages.contains(&Message::Again) {
                self.again(turn.session);
                continue;
            }
            self.pinned[turn.session] |= turn.messages.iter().any(Message::may_pin);
            self.sessions[turn.session].say(&turn.messages);
        }
        done
    }

    /// Whether a session finds a connection, and leaves one to the others if it is going to keep its own.
    fn may_play(&self, turn: &crate::script::Turn) -> bool {
        let others = || (0..self.sessions.len()).filter(|index| *index != turn.session);
        let holders = others().filter(|index| self.holds(*index)).count();
        let pinned = others().filter(|index| self.pinned[*index]).count();
        let pins = self.pinned[turn.session] || turn.messages.iter().any(Message::may_pin);
        let leaves = turn.messages.contains(&Message::Again);
        let finds = holders < self.connections && (!pins || pinned + 1 < self.connections);
        finds && (!leaves || self.sessions[turn.session].rests())
    }

    fn holds(&self, index: usize) -> bool {
        self.pinned[index] || !self.sessions[index].rests()
    }

    /// Another session takes the place of one that leaves.
    fn again(&mut self, index: usize) {
        let (port, name, patience) = self.door;
        let mut next = Session::login(port, name, name, patience);
        std::mem::swap(&mut next, &mut self.sessions[index]);
        self.sessions[index].take_over(&mut next);
        self.pinned[index] = false;
    }

    /// Ends what is open, has every session tell what it sees, and returns all that was heard.
    fn end(mut self) -> Heard {
        let (waiting, holding): (Vec<_>, Vec<_>) =
            (0..self.sessions.len()).partition(|index| self.sessions[*index].rests());
        for index in holding
            .iter()
            .chain(&waiting)
            .filter(|index| !self.sessions[**index].is_over())
            .copied()
            .collect::<Vec<_>>()
        {
            self.sessions[index].finish();
            self.sessions[index].say(&[Message::Query("ROLLBACK".to_owned())]);
        }
        for session in self.sessions.iter_mut().filter(|session| !session.is_over()) {
            session.say(&[Message::Query(PROBE.to_owned())]);
        }
        self.sessions.into_iter().map(Session::all).collect()
    }
}
