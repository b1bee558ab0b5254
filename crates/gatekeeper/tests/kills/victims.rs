//! Clients that are brought into a state, to die there.

use crate::gate::client::{bind_to, copy_data, copy_done, fetch, flush, group, parse, query, sync, synced};
use crate::ledger::{Fate, Ledger};
use crate::line::{Death, Heard, Line, Place, startup};
use crate::stage::USER;
use crate::support::chance::Chance;

/// Where a client may be when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Silent,
    HalfStartup,
    LoginUnderWay,
    Challenged,
    Idle,
    HalfMessage,
    Querying,
    Writing,
    Sleeping,
    Deferred,
    InTransaction,
    InFailedTransaction,
    Committing,
    InBatch,
    Flushed,
    Skipping,
    Suspended,
    Pipelining,
    CopyingIn,
    CopyingInAMessage,
    CopyingInABatch,
    CopyingOut,
    ReadingSlowly,
    Pinned,
    PinnedInTransaction,
    Locking,
    AnyByte,
}

/// All of them.
pub(crate) const STATES: [State; 27] = [
    State::Silent,
    State::HalfStartup,
    State::LoginUnderWay,
    State::Challenged,
    State::Idle,
    State::HalfMessage,
    State::Querying,
    State::Writing,
    State::Sleeping,
    State::Deferred,
    State::InTransaction,
    State::InFailedTransaction,
    State::Committing,
    State::InBatch,
    State::Flushed,
    State::Skipping,
    State::Suspended,
    State::Pipelining,
    State::CopyingIn,
    State::CopyingInAMessage,
    State::CopyingInABatch,
    State::CopyingOut,
    State::ReadingSlowly,
    State::Pinned,
    State::PinnedInTransaction,
    State::Locking,
    State::AnyByte,
];

/// The owner of the victims' transactions.
const OWNER: &str = "victim";

fn insert(number: u64) -> String {
    format!("INSERT INTO ledger VALUES ({number}, '{OWNER}')")
}

impl State {
    /// Whether the client may die with half a message of its own before the server: nothing can follow that.
    pub(crate) fn may_cost_a_connection(self) -> bool {
        matches!(self, Self::CopyingInAMessage | Self::AnyByte)
    }

    /// How a client dies there. What a client said before its good-bye is done, so that no client says it
    /// that sleeps long.
    pub(crate) fn death(self, chance: &mut Chance) -> Death {
        match self {
            Self::Sleeping => *chance.choose(&[Death::Reset, Death::Close]),
            _ => Death::any(chance),
        }
    }

    /// Brings a client there. Its answers are awaited only where the state needs it.
    pub(crate) fn reach(self, place: Place, ledger: &Ledger, chance: &mut Chance) -> Line {
        let mut line = Line::connect(place.clone()).expect("the gate listens");
        match self {
            Self::Silent => return line,
            Self::HalfStartup => {
                let whole = startup(USER);
                line.send(&whole[..chance.below(whole.len())]);
                return line;
            }
            Self::LoginUnderWay => {
                line.send(&startup(USER));
                return line;
            }
            Self::Challenged => {
                line.send(&startup(USER));
                line.sip();
                return line;
            }
            _ => {}
        }
        let mut line = Line::login(place, USER).expect("the gate lets them in");
        match self {
            Self::AnyByte => {
                let script = script(ledger, chance);
                line.send(&script[..chance.below(script.len() + 1)]);
                if chance.once_in(2) {
                    line.sip();
                }
            }
            _ => self.lead(&mut line, ledger, chance),
        }
        line
    }

    /// The states after a login.
    fn lead(self, line: &mut Line, ledger: &Ledger, chance: &mut Chance) {
        let mut say = |bytes: Vec<u8>, expected: &[&str]| {
            assert_eq!(line.ask(&bytes, expected), Heard::Whole, "{self:?}");
        };
        match self {
            Self::Silent | Self::HalfStartup | Self::LoginUnderWay | Self::Challenged => {}
            Self::AnyByte | Self::Idle => {}
            Self::HalfMessage => {
                let whole = query("SELECT 'never'");
                say(whole[..1 + chance.below(whole.len() - 1)].to_vec(), &[]);
            }
            Self::Querying => say(query("SELECT count(*) FROM generate_series(1, 20000)"), &[]),
            Self::Writing => {
                let number = ledger.begin(OWNER);
                ledger.note(number, OWNER, Fate::Unknown);
                let bytes = if chance.once_in(2) { query(&insert(number)) } else { synced(&insert(number)) };
                say(bytes, &[]);
            }
            Self::Sleeping => say(query("SELECT pg_sleep(600)"), &[]),
            Self::Deferred => say(query("BEGIN"), &["C(BEGIN)", "Z(T)"]),
            Self::InTransaction | Self::InFailedTransaction | Self::Committing => {
                let number = ledger.begin(OWNER);
                say(query("BEGIN"), &["C(BEGIN)", "Z(T)"]);
                say(query(&insert(number)), &["C(INSERT 0 1)", "Z(T)"]);
                if self == Self::InFailedTransaction {
                    say(synced("SELECT 1/0"), &["1", "E(22012)", "Z(E)"]);
                } else if self == Self::Committing {
                    ledger.note(number, OWNER, Fate::Unknown);
                    say(query("COMMIT"), &[]);
                }
            }
            Self::InBatch => say([parse("s", "SELECT 1"), group(&insert(ledger.begin(OWNER)))].concat(), &[]),
            Self::Flushed => {
                // Without its Sync it is rolled back, unless the gate ends it properly for a client that is
                // gone.
                let number = ledger.begin(OWNER);
                ledger.note(number, OWNER, Fate::Unknown);
                say([group(&insert(number)), flush()].concat(), &["1", "2", "C(INSERT 0 1)"]);
            }
            Self::Skipping => {
                line.send(&[group("SELECT * FROM nowhere"), flush()].concat());
                assert_eq!(line.word().as_deref(), Some("E(42P01)"));
            }
            Self::Suspended => {
                let portal =
                    [parse("", "SELECT generate_series(1, 10)"), bind_to("p"), fetch("p", 3), flush()];
                say(portal.concat(), &["1", "2", "D(1)", "D(2)", "D(3)", "s"]);
            }
            Self::Pipelining => {
                let numbers: Vec<_> = (0..20).map(|_| ledger.begin(OWNER)).collect();
                numbers.iter().for_each(|number| ledger.note(*number, OWNER, Fate::Unknown));
                say(numbers.iter().flat_map(|number| synced(&insert(*number))).collect(), &[]);
            }
            Self::CopyingIn | Self::CopyingInAMessage => {
                say(query("COPY ledger FROM STDIN"), &["G"]);
                let row =
                    copy_data(&format!("{}\t{OWNER}\n", ledger.begin(OWNER)).repeat(1 + chance.below(3000)));
                let end = if self == Self::CopyingIn { row.len() } else { 1 + chance.below(row.len() - 1) };
                say(row[..end].to_vec(), &[]);
            }
            Self::CopyingInABatch => {
                say([group("COPY ledger FROM STDIN"), sync()].concat(), &["1", "2", "G"]);
                say(copy_data(&format!("{}\t{OWNER}\n", ledger.begin(OWNER))), &[]);
            }
            Self::CopyingOut => {
                say(query("COPY (SELECT generate_series(1, 2000000)) TO STDOUT"), &["H"]);
                line.sip();
            }
            Self::ReadingSlowly => say(query("SELECT repeat('x', 1000), generate_series(1, 100000)"), &["T"]),
            Self::Pinned | Self::PinnedInTransaction => {
                // Refused where there are too many of them; then it dies idle.
                let created =
                    line.ask(&query("CREATE TEMP TABLE mine (a int)"), &["C(CREATE TABLE)", "Z(I)"]);
                if created == Heard::Whole && self == Self::PinnedInTransaction {
                    line.send(&[query("BEGIN"), query(&insert(ledger.begin(OWNER)))].concat());
                }
            }
            Self::Locking => {
                let locked =
                    line.ask(&query("SELECT pg_advisory_lock(1)"), &["T", "D()", "C(SELECT 1)", "Z(I)"]);
                assert!(matches!(locked, Heard::Whole | Heard::Error(..)), "{locked:?}");
            }
        }
    }
}

/// A long dialogue in one write, to be broken off after any byte.
fn script(ledger: &Ledger, chance: &mut Chance) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..8 {
        let number = ledger.begin(OWNER);
        ledger.note(number, OWNER, Fate::Unknown);
        bytes.extend(match chance.below(7) {
            0 => query(&insert(number)),
            1 => synced(&insert(number)),
            2 => [query("BEGIN"), query(&insert(number)), query("COMMIT")].concat(),
            3 => [query("BEGIN"), synced(&insert(number)), query("ROLLBACK")].concat(),
            4 => [group(&insert(number)), group("SELECT 1/0"), sync()].concat(),
            5 => query("SELECT repeat('x', 100), generate_series(1, 2000)"),
            _ => {
                let copy = copy_data(&format!("{number}\t{OWNER}\n"));
                [query("COPY ledger FROM STDIN"), copy, copy_done()].concat()
            }
        });
    }
    bytes
}
