//! Random scripts: a seed alone decides them.

mod statements;

use crate::known;
use crate::script::{Message, SESSIONS_MAX, Script, Turn};
use crate::support::chance::Chance;
use statements::Statements;

/// How many turns a script has.
const TURNS: std::ops::Range<usize> = 5..26;
/// Names of prepared statements and portals, the unnamed one among them.
const NAMES: [&str; 3] = ["", "s", "t"];

/// Messages whose fields don't fill their bodies.
const MALFORMED: [(char, &str); 22] = [
    ('Q', ""),
    ('Q', "SELECT 1"),
    ('Q', "SELECT 1\0more\0"),
    ('P', "s"),
    ('P', "s\0SELECT 1\0"),
    ('P', "t\0BEGIN\0\0 "),
    ('P', "\0COMMIT\0\0\0more"),
    ('B', "\0s"),
    ('B', "\0s\0"),
    ('B', "\0\0\0\0\0 "),
    ('B', "\0t\0\0\0\0\0\0\0more"),
    ('D', ""),
    ('D', "Ss"),
    ('D', "Xs\0"),
    ('C', "Ss"),
    ('C', "Xs\0"),
    ('E', "\0"),
    ('E', "\0\0\0\0\0more"),
    ('F', "more"),
    ('H', "more"),
    ('S', "more"),
    ('c', "more"),
];

/// The script of a seed, for a gate with this number of connections.
pub(crate) fn script(seed: u64, connections: usize) -> Script {
    let mut author = Author::new(seed, connections);
    let turns = TURNS.start + author.chance.below(TURNS.len());
    let mut script = Script { connections, turns: Vec::new() };
    while script.turns.len() < turns {
        let session = author.whose_turn();
        for messages in author.turns(session) {
            script.turns.push(Turn { session, messages });
        }
    }
    script
}

struct Author {
    chance: Chance,
    /// Of each session: whether it is likely to be within a transaction.
    in_transaction: Vec<bool>,
    /// Of each session: whether PostgreSQL may have taken a snapshot in its transaction that the gate has
    /// not.
    has_snapshot: Vec<bool>,
    last: usize,
    /// The texts of all batches so far: a statement is prepared once and executed often.
    prepared: String,
    statements: Statements,
}

impl Author {
    fn new(seed: u64, connections: usize) -> Self {
        let mut chance = Chance::new(seed);
        let sessions = (connections + 1 + chance.below(2)).min(SESSIONS_MAX);
        let statements = Statements::new(&mut chance);
        Self {
            chance,
            in_transaction: vec![false; sessions],
            has_snapshot: vec![false; sessions],
            last: 0,
            prepared: String::new(),
            statements,
        }
    }

    /// A session within a transaction is likely to go on: with few connections the others have to wait for
    /// its end.
    fn whose_turn(&mut self) -> usize {
        if !self.in_transaction[self.last] || self.chance.once_in(4) {
            self.last = self.chance.below(self.in_transaction.len());
        }
        self.last
    }

    fn statement(&mut self, session: usize) -> String {
        let is_open = self.in_transaction[session];
        let mut sql = self.statements.draw(&mut self.chance, session, is_open);
        self.has_snapshot[session] &= is_open;
        if (!is_open && known::differs_outside(&sql))
            || (self.has_snapshot[session] && known::differs_in_a_batch(&sql))
        {
            sql = "SET TRANSACTION READ ONLY".to_owned();
        }
        if is_open && known::warns_of_its_text(&sql) {
            sql = "SELECT 1".to_owned();
        }
        self.has_snapshot[session] |= known::takes_no_snapshot(&sql);
        match sql.split(' ').next().unwrap_or_default() {
            "BEGIN" | "START" => self.in_transaction[session] = true,
            "COMMIT" | "END" | "ABORT" => self.in_transaction[session] = sql.contains("AND CHAIN"),
            "ROLLBACK" => self.in_transaction[session] &= sql.contains("TO "),
            _ => {}
        }
        sql
    }

    /// What a session does next: mostly one turn, sometimes some that belong together.
    fn turns(&mut self, session: usize) -> Vec<Vec<Message>> {
        match self.chance.below(100) {
            0..45 => vec![vec![Message::Query(self.statement(session))]],
            45..58 => {
                let count = 2 + self.chance.below(3);
                let texts: Vec<_> = (0..count).map(|_| self.statement(session)).collect();
                vec![texts_together(texts)]
            }
            58..82 => self.batch(session),
            82..87 => self.copy(session),
            87..91 => vec![vec![self.function()]],
            91..93 if !self.in_transaction[session] => vec![vec![Message::Again]],
            93 => vec![vec![self.malformed(), Message::Sync]],
            94 if !self.in_transaction[session] => self.later(),
            _ => self.nested(session),
        }
    }

    /// A portal that is executed in a later segment than that of its Bind. (In a transaction that has failed
    /// meanwhile PostgreSQL 15 crashes.)
    fn later(&mut self) -> Vec<Vec<Message>> {
        let ends = ["COMMIT", "ROLLBACK", "SAVEPOINT s0", "RESET ROLE"];
        let sql = match self.chance.below(3) {
            0 => (*self.chance.choose(&ends)).to_owned(),
            _ => self.statements.setting(&mut self.chance),
        };
        let (portal, statement, values) = ("p".to_owned(), String::new(), Vec::new());
        let bound = vec![
            Message::Parse { name: String::new(), sql },
            Message::Bind { portal: portal.clone(), statement, values },
            Message::Sync,
        ];
        let query = |sql: &str| vec![Message::Query(sql.to_owned())];
        let run = vec![Message::Execute { portal, rows: 0 }, Message::Sync];
        let end = *self.chance.choose(&["COMMIT", "ROLLBACK"]);
        vec![query("BEGIN"), bound, query("SELECT 1"), run, query(end)]
    }

    /// Several groups of the extended protocol, with their Syncs, Flushes and pauses.
    fn batch(&mut self, session: usize) -> Vec<Vec<Message>> {
        let mut turns = vec![Vec::new()];
        for _ in 0..1 + self.chance.below(3) {
            let mut messages = self.group(session);
            if self.chance.once_in(20) {
                let place = self.chance.below(messages.len() + 1);
                messages.insert(place, self.malformed());
            }
            match self.chance.below(8) {
                0 => {}
                1 => {
                    messages.push(Message::Flush);
                    turns.extend([messages, Vec::new()]);
                    continue;
                }
                _ => messages.push(Message::Sync),
            }
            let last = turns.len() - 1;
            turns[last].extend(messages);
            if self.chance.once_in(2) {
                turns.push(Vec::new());
            }
        }
        let last = turns.len() - 1;
        if !matches!(turns[last].last(), Some(Message::Sync)) {
            turns[last].push(Message::Sync);
        }
        self.prepared.extend(turns.iter().flatten().filter_map(Message::sql));
        if known::shows_another_start(&self.prepared) {
            turns.iter_mut().for_each(|turn| *turn = each_synced(std::mem::take(turn)));
        }
        turns
    }

    /// Messages about one statement, without their end.
    fn group(&mut self, session: usize) -> Vec<Message> {
        let mut name = (*self.chance.choose(&NAMES)).to_owned();
        if self.chance.once_in(20) {
            // The server tells names apart by their first 63 bytes.
            name = "n".repeat(63) + &name;
        }
        let portal = if self.chance.once_in(5) { "p".to_owned() } else { String::new() };
        let mut messages = Vec::new();
        let mut describes = self.chance.once_in(5);
        if name.is_empty() || self.chance.once_in(2) {
            if !name.is_empty() && self.chance.once_in(3) {
                messages.push(Message::CloseStatement(name.clone()));
            }
            let was_in_transaction = self.in_transaction[session];
            let mut sql = self.statement(session);
            if known::differs_in_a_batch(&sql) {
                sql = "SET TRANSACTION READ ONLY".to_owned();
            }
            if known::differs_described(&sql) {
                // No later group finds it by a name.
                (name, describes) = (String::new(), false);
            }
            // PostgreSQL takes a snapshot for what it prepares, and the gate may do that elsewhere.
            self.has_snapshot[session] |= was_in_transaction || self.in_transaction[session];
            messages.push(Message::Parse { name: name.clone(), sql });
            if self.chance.once_in(5) {
                // A group that only prepares.
                self.in_transaction[session] = was_in_transaction;
                if describes {
                    messages.push(Message::DescribeStatement(name));
                }
                return messages;
            }
        }
        if describes {
            messages.push(Message::DescribeStatement(name.clone()));
        }
        messages.push(Message::Bind { portal: portal.clone(), statement: name.clone(), values: Vec::new() });
        if self.chance.once_in(2) {
            messages.push(Message::DescribePortal(portal.clone()));
        }
        let rows = if self.chance.once_in(6) { 1 } else { 0 };
        messages.push(Message::Execute { portal: portal.clone(), rows });
        if rows == 1 {
            messages.push(Message::Execute { portal: portal.clone(), rows: 0 });
        }
        match self.chance.below(12) {
            0 => messages.push(Message::ClosePortal(portal)),
            1 => messages.push(Message::CloseStatement(name)),
            2 => {
                let sql = self.statement(session);
                let differs = known::differs_in_a_batch(&sql);
                messages.push(Message::Query(if differs {
                    "SET TRANSACTION READ ONLY".to_owned()
                } else {
                    sql
                }));
            }
            _ => {}
        }
        messages
    }

    /// A COPY, with its messages in one of many orders.
    fn copy(&mut self, session: usize) -> Vec<Vec<Message>> {
        let id = 10 * (session + 1) + self.chance.below(5);
        let table = *self.chance.choose(&["a", "a", "nothing"]);
        // The columns are named: a column that the script adds would make the server end the copy early.
        let sql = format!("COPY {table} (id, note) FROM STDIN");
        let row = match self.chance.below(8) {
            0 => "bad\n".to_owned(),
            _ => format!("{id}\tcopied\n"),
        };
        let data = Message::CopyData(row);
        let end = if self.chance.once_in(5) { Message::CopyFail("no".to_owned()) } else { Message::CopyDone };
        let (parse, bind) = (
            Message::Parse { name: String::new(), sql: sql.clone() },
            Message::Bind { portal: String::new(), statement: String::new(), values: Vec::new() },
        );
        let execute = Message::Execute { portal: String::new(), rows: 0 };
        let start = vec![parse, bind, execute];
        let with = |more: &[Message]| [start.as_slice(), more].concat();
        match self.chance.below(11) {
            0 => vec![vec![Message::Query(sql)], vec![data, end]],
            1 => vec![vec![Message::Query(sql), data, end]],
            2 => vec![vec![Message::Query(format!("{sql}; SELECT count(*) FROM a"))], vec![data, end]],
            3 => vec![with(&[Message::Sync]), vec![data, end, Message::Sync]],
            4 => vec![with(&[data, end, Message::Sync])],
            5 => vec![with(&[data]), vec![end, Message::Sync]],
            6 => vec![with(&[Message::Sync, data, end, Message::Sync])],
            7 => vec![with(&[Message::Flush]), vec![data, end, Message::Sync]],
            8 => vec![with(&[data.clone(), Message::Sync]), vec![Message::Sync, data, end, Message::Sync]],
            9 => vec![vec![Message::Query(sql), data.clone()], vec![Message::Sync, data, Message::Sync, end]],
            _ => {
                let mut second = with(&[data, end, Message::Sync]);
                second.insert(0, Message::Query("SELECT 1".to_owned()));
                vec![second]
            }
        }
    }

    fn malformed(&mut self) -> Message {
        let (tag, body) = *self.chance.choose(&MALFORMED);
        Message::Raw { tag, body: body.to_owned() }
    }

    /// The fast path, by the numbers that built-in functions have.
    fn function(&mut self) -> Message {
        let text = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let (oid, values) = match self.chance.below(8) {
            0 | 1 => {
                let tenant = *self.chance.choose(&["7", "8"]);
                (2078, text(&["app.tenant", tenant, "f"]))
            }
            2 => (2078, text(&["app.tenant", "9", "t"])),
            3 => (2882, text(&["5"])),
            4 => (2885, text(&["5"])),
            5 => (2077, text(&["timezone"])),
            6 => (999_999, Vec::new()),
            _ => (1258, text(&["a", "b"])),
        };
        Message::Function { oid, values }
    }

    /// Transactions within transactions as drivers have them, a message each or all in one.
    fn nested(&mut self, session: usize) -> Vec<Vec<Message>> {
        let mut texts: Vec<String> = vec!["BEGIN".to_owned()];
        self.in_transaction[session] = true;
        if self.chance.once_in(2) {
            texts.push(self.statement(session));
        }
        for level in 0..1 + self.chance.below(3) {
            texts.push(format!("SAVEPOINT s{level}"));
            texts.push(self.statements.setting(&mut self.chance));
            match self.chance.below(4) {
                0 => texts.push("SELECT 1/0".to_owned()),
                1 => texts.push(self.statement(session)),
                _ => {}
            }
            if self.chance.once_in(2) {
                texts.push(format!(
                    "{} s{}",
                    self.chance.choose(&["ROLLBACK TO", "RELEASE"]),
                    self.chance.below(level + 1)
                ));
            }
        }
        texts.push((*self.chance.choose(&["COMMIT", "COMMIT", "ROLLBACK"])).to_owned());
        self.in_transaction[session] = false;
        match self.chance.below(4) {
            0 => vec![texts_together(texts)],
            1 => vec![texts.into_iter().map(Message::Query).collect()],
            2 => texts.into_iter().map(extended).collect(),
            _ => texts.into_iter().map(|sql| vec![Message::Query(sql)]).collect(),
        }
    }
}

/// Statements as one text, or as one each where that is known to be heard otherwise.
fn texts_together(texts: Vec<String>) -> Vec<Message> {
    let text = texts.join("; ");
    if known::differs_in_one_text(&text) {
        return texts.into_iter().map(Message::Query).collect();
    }
    vec![Message::Query(text)]
}

/// A batch with a Sync behind each Execute.
fn each_synced(messages: Vec<Message>) -> Vec<Message> {
    let mut synced = Vec::new();
    for message in messages {
        let executes = matches!(message, Message::Execute { .. });
        synced.push(message);
        if executes {
            synced.push(Message::Sync);
        }
    }
    synced
}

/// A statement as a whole batch.
fn extended(sql: String) -> Vec<Message> {
    let none = String::new;
    vec![
        Message::Parse { name: none(), sql },
        Message::Bind { portal: none(), statement: none(), values: Vec::new() },
        Message::Execute { portal: none(), rows: 0 },
        Message::Sync,
    ]
}
