//! A client that does what applications do, over and over, and knows exactly what it may be told at each
//! moment. Every answer has its own name in it: what is anybody else's fails.

use std::sync::Arc;

use crate::gate::client::{
    close, copy_data, copy_done, copy_fail, execute, group, parse, query, sync, synced,
};
use crate::ledger::{Fate, Ledger};
use crate::line::{Death, Heard, Line, Place};
use crate::mode::Door;
use crate::support::chance::Chance;
use crate::support::raw;

/// Rows of a long result.
const ROWS_MAX: usize = 3000;
/// Statements that a client sends in one write.
const PIPELINE_MAX: usize = 6;
/// What a session starts with.
pub(crate) const WORK_MEM: &str = "4MB";

/// What workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Everything.
    All,
    /// Nothing that only a cancel request ends: a gate that drains takes no more connections, not even for
    /// that.
    Patient,
}

/// One client and its session.
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) chance: Chance,
    pub(crate) ledger: Arc<Ledger>,
    door: Arc<Door>,
    user: &'static str,
    habit: Habit,
    line: Option<Line>,
    /// The session has its statement.
    is_prepared: bool,
    /// What the session has set; `None` is the default.
    application: Option<String>,
    work_mem: Option<String>,
    serial: u64,
}

impl Worker {
    pub(crate) fn new(
        name: String,
        seed: u64,
        ledger: &Arc<Ledger>,
        door: &Arc<Door>,
        user: &'static str,
        habit: Habit,
    ) -> Self {
        let (chance, ledger, door) = (Chance::new(seed), Arc::clone(ledger), Arc::clone(door));
        let (line, is_prepared, application, work_mem, serial) = (None, false, None, None, 0);
        Self { name, chance, ledger, door, user, habit, line, is_prepared, application, work_mem, serial }
    }

    /// Does one thing, after a login if there is no session. Returns whether it was done as if there were
    /// no faults.
    pub(crate) fn work(&mut self) -> bool {
        if self.line.is_none() {
            self.line = Line::login(Place::any(&self.door, &mut self.chance), self.user);
            (self.is_prepared, self.application, self.work_mem) = (false, None, None);
            if self.line.is_none() {
                return false;
            }
        }
        self.serial += 1;
        match self.chance.below(16) {
            0 | 1 => self.inserts(),
            2 | 3 => self.inserts_prepared(),
            4 | 5 => self.commits(),
            6 => self.commits_in_one_write(),
            7 => self.rolls_back(),
            8 | 9 => self.pipelines(),
            10 => self.reads_much(),
            11 => self.copies_in(),
            12 => self.copies_out(),
            13 if self.door.is_session() && self.chance.once_in(2) => self.keeps_its_process(),
            13 => self.sets(),
            14 => self.pins(),
            _ if self.habit == Habit::Patient => self.reads_much(),
            _ => self.cancels(),
        }
    }

    /// Rests: where a session has a server connection of its own, that is given back.
    pub(crate) fn rest(&mut self) {
        if self.door.is_session() {
            self.line.take().into_iter().for_each(|line| line.die(Death::GoodBye));
        }
    }

    /// Asks; a session that has ended is forgotten.
    fn ask(&mut self, bytes: &[u8], expected: &[&str]) -> Heard {
        if let Some(line) = &mut self.line {
            line.send(bytes);
        }
        self.hear(expected)
    }

    fn hear(&mut self, expected: &[&str]) -> Heard {
        let Some(line) = &mut self.line else { return Heard::Closed(None) };
        let heard = line.hear(expected);
        match &heard {
            Heard::Closed(code) => {
                let known = ["57P01", "57P03", "08007"];
                assert!(code.as_deref().is_none_or(|code| known.contains(&code)), "{heard:?}");
                self.line = None;
            }
            Heard::Error(code, _) => {
                assert!(["08006", "08007", "53300", "57014"].contains(&code.as_str()), "{heard:?}");
            }
            Heard::Whole => {}
        }
        heard
    }

    /// A mark that no other client and no other moment has.
    fn mark(&self) -> String {
        format!("{}-{}", self.name, self.serial)
    }

    fn begin(&mut self) -> u64 {
        self.ledger.begin(&self.name)
    }

    fn note(&self, number: u64, fate: Fate) {
        self.ledger.note(number, &self.name, fate);
    }

    /// Notes what an autocommitted statement's answer says of it.
    fn note_autocommit(&self, number: u64, heard: &Heard) -> bool {
        let fate = match heard {
            Heard::Whole => Fate::Committed,
            Heard::Error(code, status) => {
                assert_eq!(status, "I", "{heard:?} outside of a transaction");
                match code.as_str() {
                    "08007" => Fate::Unknown,
                    // Refused, or lost before it was sent, on the second connection too: both say that it
                    // was not done.
                    "53300" | "08006" => Fate::Absent,
                    _ => panic!("{heard:?} outside of a transaction"),
                }
            }
            Heard::Closed(None) => Fate::Unknown,
            Heard::Closed(Some(code)) if code == "08007" => Fate::Unknown,
            // Any other last word says that it was not done.
            Heard::Closed(Some(_)) => Fate::Absent,
        };
        self.note(number, fate);
        *heard == Heard::Whole
    }

    fn insert(&self, number: u64) -> String {
        format!("INSERT INTO ledger VALUES ({number}, '{}') RETURNING owner", self.name)
    }

    fn inserts(&mut self) -> bool {
        let number = self.begin();
        let own = format!("D({})", self.name);
        self.note(number, Fate::Unknown);
        let heard = self.ask(&query(&self.insert(number)), &["T", &own, "C(INSERT 0 1)", "Z(I)"]);
        self.note_autocommit(number, &heard)
    }

    fn inserts_prepared(&mut self) -> bool {
        if !self.is_prepared {
            // One text for all, and so one statement on each server connection. It may be there already, if
            // only the end of an earlier attempt was lost.
            let parse = parse("insert", "INSERT INTO ledger VALUES ($1::bigint, $2) RETURNING owner");
            self.is_prepared =
                self.ask(&[close("insert"), parse, sync()].concat(), &["3", "1", "Z(I)"]) == Heard::Whole;
            if !self.is_prepared {
                return false;
            }
        }
        let number = self.begin();
        let own = format!("D({})", self.name);
        self.note(number, Fate::Unknown);
        let bytes = [bind_texts("insert", &[&number.to_string(), &self.name]), execute(), sync()].concat();
        let heard = self.ask(&bytes, &["2", &own, "C(INSERT 0 1)", "Z(I)"]);
        self.note_autocommit(number, &heard)
    }

    /// Something within a transaction; `false`: it has failed, and is over.
    fn within(&mut self, bytes: &[u8], expected: &[&str]) -> bool {
        match self.ask(bytes, expected) {
            Heard::Whole => true,
            Heard::Closed(code) => {
                assert_ne!(
                    code.as_deref(),
                    Some("08007"),
                    "within a transaction that was not to be committed"
                );
                false
            }
            Heard::Error(code, status) => {
                assert_eq!(status, "E", "{code} within a transaction");
                assert_ne!(code, "08007", "within a transaction that was not to be committed");
                self.ask(&query("ROLLBACK"), &["C(ROLLBACK)", "Z(I)"]);
                false
            }
        }
    }

    /// A transaction up to its end.
    fn transaction(&mut self, number: u64) -> bool {
        let (own, mark) = (format!("D({})", self.name), self.mark());
        let begin = *self.chance.choose(&["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE"]);
        let marked = format!("D({mark})");
        self.within(&query(begin), &["C(BEGIN)", "Z(T)"])
            && (self.chance.once_in(2) || self.within(&query("SAVEPOINT a"), &["C(SAVEPOINT)", "Z(T)"]))
            && self.within(&query(&self.insert(number)), &["T", &own, "C(INSERT 0 1)", "Z(T)"])
            && (self.chance.once_in(2)
                || self.within(
                    &synced(&format!("SELECT '{mark}'")),
                    &["1", "2", &marked, "C(SELECT 1)", "Z(T)"],
                ))
    }

    fn commits(&mut self) -> bool {
        let number = self.begin();
        if !self.transaction(number) {
            return false;
        }
        self.note(number, Fate::Unknown);
        let heard = self.ask(&query("COMMIT"), &["C(COMMIT)", "Z(I)"]);
        self.note_commit(number, &heard)
    }

    fn note_commit(&self, number: u64, heard: &Heard) -> bool {
        let fate = match heard {
            Heard::Whole => Fate::Committed,
            Heard::Error(code, status) => {
                assert_eq!(status, "I", "{heard:?} at the end of a transaction");
                match code.as_str() {
                    "08006" => Fate::Absent,
                    "08007" => Fate::Unknown,
                    _ => panic!("{heard:?} at the end of a transaction"),
                }
            }
            Heard::Closed(_) => Fate::Unknown,
        };
        self.note(number, fate);
        *heard == Heard::Whole
    }

    fn commits_in_one_write(&mut self) -> bool {
        let number = self.begin();
        self.note(number, Fate::Unknown);
        let insert = if self.chance.once_in(2) { group(&self.insert(number)) } else { Vec::new() };
        let own = format!("D({})", self.name);
        // In the simple protocol, or in the extended one with a Sync in between.
        let (insert, expected) = if insert.is_empty() {
            (query(&self.insert(number)), ["T", &own, "C(INSERT 0 1)", "Z(T)"].to_vec())
        } else {
            ([insert, sync()].concat(), ["1", "2", &own, "C(INSERT 0 1)", "Z(T)"].to_vec())
        };
        match self.ask(&[query("BEGIN"), insert, query("COMMIT")].concat(), &["C(BEGIN)", "Z(T)"]) {
            Heard::Whole => {}
            Heard::Closed(_) => return false,
            heard @ Heard::Error(..) => panic!("{heard:?} to a BEGIN"),
        }
        match self.hear(&expected) {
            Heard::Whole => {
                let heard = self.hear(&["C(COMMIT)", "Z(I)"]);
                self.note_commit(number, &heard)
            }
            Heard::Error(_, status) => {
                assert_eq!(status, "E");
                self.note(number, Fate::Absent);
                self.hear(&["C(ROLLBACK)", "Z(I)"]);
                false
            }
            Heard::Closed(_) => false,
        }
    }

    fn rolls_back(&mut self) -> bool {
        let number = self.begin();
        self.transaction(number) && self.within(&query("ROLLBACK"), &["C(ROLLBACK)", "Z(I)"])
    }

    fn pipelines(&mut self) -> bool {
        let numbers: Vec<_> = (0..=self.chance.below(PIPELINE_MAX)).map(|_| self.begin()).collect();
        numbers.iter().for_each(|number| self.note(*number, Fate::Unknown));
        let own = format!("D({})", self.name);
        let bytes: Vec<_> = numbers.iter().map(|number| synced(&self.insert(*number))).collect();
        if let Some(line) = &mut self.line {
            line.send(&bytes.concat());
        }
        let mut whole = true;
        for number in numbers {
            if self.line.is_none() {
                // It may have been done all the same.
                return false;
            }
            let heard = self.hear(&["1", "2", &own, "C(INSERT 0 1)", "Z(I)"]);
            whole &= self.note_autocommit(number, &heard);
        }
        whole
    }

    fn reads_much(&mut self) -> bool {
        let (mark, count) = (self.mark(), 1 + self.chance.below(ROWS_MAX));
        let rows = (1..=count).map(|row| format!("D({mark},{row},{})", "x".repeat(50)));
        let mut expected: Vec<_> = std::iter::once("T".to_owned()).chain(rows).collect();
        expected.extend([format!("C(SELECT {count})"), "Z(I)".to_owned()]);
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        let sql = format!("SELECT '{mark}', i, repeat('x', 50) FROM generate_series(1, {count}) i");
        self.ask(&query(&sql), &expected) == Heard::Whole
    }

    fn copies_in(&mut self) -> bool {
        match self.ask(&query("COPY ledger FROM STDIN"), &["G"]) {
            Heard::Whole => {}
            Heard::Error(..) | Heard::Closed(_) => return false,
        }
        if self.chance.once_in(4) {
            let number = self.begin();
            let row = copy_data(&format!("{number}\t{}\n", self.name));
            return self.ask(&[row, copy_fail("changed my mind")].concat(), &["E(57014)", "Z(I)"])
                == Heard::Whole;
        }
        let numbers: Vec<_> = (0..=self.chance.below(50)).map(|_| self.begin()).collect();
        let mut bytes = Vec::new();
        for number in &numbers {
            self.note(*number, Fate::Unknown);
            bytes.extend(copy_data(&format!("{number}\t{}\n", self.name)));
        }
        bytes.extend(copy_done());
        let heard = self.ask(&bytes, &[&format!("C(COPY {})", numbers.len()), "Z(I)"]);
        for number in numbers {
            self.note_autocommit(number, &heard);
        }
        heard == Heard::Whole
    }

    fn copies_out(&mut self) -> bool {
        let (mark, count) = (self.mark(), 1 + self.chance.below(ROWS_MAX));
        let rows = (1..=count).map(|row| format!("d({mark}\t{row}\n)"));
        let mut expected: Vec<_> = std::iter::once("H".to_owned()).chain(rows).collect();
        expected.extend(["c".to_owned(), format!("C(COPY {count})"), "Z(I)".to_owned()]);
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        let sql = format!("COPY (SELECT '{mark}', i FROM generate_series(1, {count}) i) TO STDOUT");
        self.ask(&query(&sql), &expected) == Heard::Whole
    }

    /// Sets something now and then, and finds what it has set, never what others have.
    fn sets(&mut self) -> bool {
        let (mark, size) = (self.mark(), 1025 + 2 * self.chance.below(5000));
        let sets = match self.chance.below(4) {
            0 => format!("SET application_name = '{mark}'"),
            1 => format!("SET work_mem = '{size}kB'"),
            _ => String::new(),
        };
        if !sets.is_empty() {
            if self.ask(&query(&sets), &["C(SET)", "Z(I)"]) != Heard::Whole {
                // Whether it is set is anybody's guess; a session like that is of no use here.
                self.line = None;
                return false;
            }
            if sets.contains("work_mem") {
                self.work_mem = Some(format!("{size}kB"));
            } else {
                self.application = Some(mark);
            }
        }
        let application = format!("D({})", self.application.as_deref().unwrap_or_default());
        let work_mem = format!("D({})", self.work_mem.as_deref().unwrap_or(WORK_MEM));
        self.ask(&query("SHOW application_name"), &["T", &application, "C(SHOW)", "Z(I)"]) == Heard::Whole
            && self.ask(&query("SHOW work_mem"), &["T", &work_mem, "C(SHOW)", "Z(I)"]) == Heard::Whole
    }

    /// Finds itself in the server process that its login told of.
    fn keeps_its_process(&mut self) -> bool {
        let Some(line) = &self.line else { return false };
        let own = format!("D({})", line.key.0);
        self.ask(&synced("SELECT pg_backend_pid()"), &["1", "2", &own, "C(SELECT 1)", "Z(I)"]) == Heard::Whole
    }

    /// Has something of its own on a server connection for a while.
    fn pins(&mut self) -> bool {
        let mark = self.mark();
        let (create, own) = (format!("CREATE TEMP TABLE mine AS SELECT '{mark}'"), format!("D({mark})"));
        match self.ask(&query(&create), &["C(SELECT 1)", "Z(I)"]) {
            Heard::Whole => {}
            // There are enough of them already.
            Heard::Error(code, _) => return code == "53300",
            Heard::Closed(_) => return false,
        }
        let found = self.ask(&query("SELECT * FROM mine"), &["T", &own, "C(SELECT 1)", "Z(I)"]);
        if found != Heard::Whole
            || self.ask(&query("DISCARD ALL"), &["C(DISCARD ALL)", "Z(I)"]) != Heard::Whole
        {
            assert!(matches!(found, Heard::Whole | Heard::Closed(_)), "{found:?} to a pinned session");
            // How much is discarded is anybody's guess, as with what may be set.
            self.line = None;
            return false;
        }
        (self.is_prepared, self.application, self.work_mem) = (false, None, None);
        true
    }

    /// Gives up on a statement.
    fn cancels(&mut self) -> bool {
        let Some(line) = &mut self.line else { return false };
        line.send(&query("SELECT pg_sleep(600)"));
        while !line.is_answered() {
            line.cancel();
        }
        match self.hear(&["T"]) {
            Heard::Whole => {}
            // It still waited for its turn.
            Heard::Error(code, _) => return code == "57014",
            Heard::Closed(_) => return false,
        }
        let Some(line) = &mut self.line else { return false };
        while !line.is_answered() {
            line.cancel();
        }
        matches!(self.hear(&["E(57014)", "Z(I)"]), Heard::Whole)
    }
}

/// Bind of a named statement to the unnamed portal, with these parameters as text.
fn bind_texts(name: &str, values: &[&str]) -> Vec<u8> {
    let mut body = [b"\0", name.as_bytes(), b"\0\0\0"].concat();
    body.extend(u16::try_from(values.len()).expect("few of them").to_be_bytes());
    for value in values {
        body.extend(u32::try_from(value.len()).expect("a short text").to_be_bytes());
        body.extend(value.as_bytes());
    }
    body.extend(b"\0\0");
    raw::message(b'B', &body)
}
