//! The book by itself: its rules one by one, and random histories beside a plain imitation of PostgreSQL.

use super::*;

fn set(name: &str, value: u64) -> Effect {
    let text = Bytes::from(format!("SET {name} = {value}"));
    changes(vec![Change::Set { name: name.to_owned(), text }])
}

fn reset(name: &str) -> Effect {
    changes(vec![Change::Reset { name: name.to_owned() }])
}

fn changes(changes: Vec<Change>) -> Effect {
    act(Act::Changes(changes))
}

fn act(act: Act) -> Effect {
    Effect { act, ..Effect::default() }
}

fn leaves(pins: Reasons, releases: Reasons) -> Effect {
    Effect { leaves: Effects { pins, releases }, ..Effect::default() }
}

fn named(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn run(book: &mut Book, effects: &[Effect]) {
    effects.iter().for_each(|effect| book.confirm(effect, b"SET"));
}

fn commit(book: &mut Book) {
    book.confirm(&act(Act::End), b"COMMIT");
    book.ready(Status::Idle, 0);
}

fn texts(book: &Book) -> Vec<String> {
    book.settings().iter().map(|setting| String::from_utf8_lossy(&setting.text).into_owned()).collect()
}

#[test]
fn what_a_savepoint_undoes_is_not_kept() {
    let mut book = Book::default();
    run(&mut book, &[set("a", 1), act(Act::Savepoint(named("s"))), set("a", 2), set("b", 2)]);
    assert_eq!(book.in_force("a").unwrap(), "SET a = 2");
    run(&mut book, &[act(Act::RollbackTo(named("s"))), set("c", 3)]);
    commit(&mut book);
    assert_eq!(texts(&book), ["SET a = 1", "SET c = 3"]);
}

#[test]
fn a_released_savepoint_gives_its_changes_to_the_level_below() {
    let mut book = Book::default();
    let outer = named("outer");
    run(&mut book, &[act(Act::Savepoint(outer.clone())), act(Act::Savepoint(named("inner"))), set("a", 1)]);
    run(&mut book, &[act(Act::Release(named("inner"))), act(Act::RollbackTo(outer))]);
    commit(&mut book);
    assert!(texts(&book).is_empty());
}

#[test]
fn a_failed_statement_undoes_its_segment_and_no_other() {
    let mut book = Book::default();
    run(&mut book, &[set("a", 1)]);
    book.fail();
    book.ready(Status::Idle, 0);
    run(&mut book, &[set("b", 1)]);
    book.ready(Status::Idle, 0);
    assert_eq!(texts(&book), ["SET b = 1"]);
}

#[test]
fn settings_keep_the_order_of_their_last_set() {
    let mut book = Book::default();
    run(&mut book, &[set("a", 1), set("b", 1), set("c", 1), set("a", 2), reset("c")]);
    book.ready(Status::Idle, 0);
    assert_eq!(texts(&book), ["SET b = 1", "SET a = 2"]);
}

#[test]
fn whether_a_reported_setting_is_at_its_default_goes_by_the_last_change() {
    let mut book = Book::new(masks(["TimeZone"].into_iter()));
    let zone = masks(["TimeZone"].into_iter());
    run(&mut book, &[reset("timezone"), set("timezone", 1)]);
    assert_eq!(book.at_default() & zone, 0);
    run(&mut book, &[act(Act::Savepoint(named("s"))), changes(vec![Change::ResetAll])]);
    assert_eq!(book.at_default() & zone, zone);
    run(&mut book, &[act(Act::RollbackTo(named("s")))]);
    commit(&mut book);
    assert_eq!((book.at_default() & zone, texts(&book).len()), (0, 0));
    run(&mut book, &[reset("timezone")]);
    book.ready(Status::Idle, 0);
    assert_eq!(book.at_default() & zone, zone);
}

#[test]
fn a_setting_that_changes_without_a_reset_is_at_its_default_no_longer() {
    let mut book = Book::new(masks(["TimeZone"].into_iter()));
    let zone = masks(["TimeZone"].into_iter());
    run(&mut book, &[reset("timezone")]);
    book.ready(Status::Idle, zone);
    book.ready(Status::Idle, 0);
    assert_eq!(book.at_default() & zone, zone);
    // What the gate sets within a transaction is no change of the session's, nor is its undoing.
    book.restored(zone);
    book.ready(Status::Transaction, 0);
    book.ready(Status::Idle, zone);
    assert_eq!(book.at_default() & zone, zone);
    book.ready(Status::Idle, zone);
    assert_eq!(book.at_default() & zone, 0);
}

#[test]
fn a_local_setting_is_in_force_until_the_transaction_ends() {
    let mut book = Book::default();
    run(&mut book, &[set("a", 1)]);
    book.ready(Status::Idle, 0);
    let text = Bytes::from_static(b"SET LOCAL a = 2");
    run(&mut book, &[changes(vec![Change::Local { name: "a".to_owned(), text }])]);
    assert_eq!(book.in_force("a").unwrap(), "SET LOCAL a = 2");
    commit(&mut book);
    assert_eq!(book.in_force("a").unwrap(), "SET a = 1");
}

#[test]
fn a_release_counts_when_its_transaction_commits_and_nothing_pins_again() {
    let listen = Reasons::LISTEN;
    let mut book = Book::default();
    run(&mut book, &[leaves(listen, Reasons::NONE)]);
    book.ready(Status::Idle, 0);
    run(&mut book, &[act(Act::Savepoint(named("a"))), leaves(Reasons::NONE, listen)]);
    run(&mut book, &[act(Act::RollbackTo(named("a")))]);
    commit(&mut book);
    assert_eq!(book.held(), listen);
    run(&mut book, &[leaves(Reasons::NONE, listen), leaves(listen, Reasons::NONE)]);
    book.ready(Status::Idle, 0);
    assert_eq!(book.held(), listen);
    run(&mut book, &[leaves(Reasons::NONE, listen)]);
    book.ready(Status::Idle, 0);
    assert!(book.held().is_empty());
}

#[test]
fn a_lock_that_a_rolled_back_savepoint_took_stays_a_pin() {
    let lock = Reasons::ADVISORY_LOCK;
    let mut book = Book::default();
    run(
        &mut book,
        &[leaves(Reasons::NONE, lock), act(Act::Savepoint(named("a"))), leaves(lock, Reasons::NONE)],
    );
    run(&mut book, &[act(Act::RollbackTo(named("a")))]);
    commit(&mut book);
    assert_eq!(book.held(), lock);
}

#[test]
fn more_savepoints_than_are_told_apart_pin_only_where_a_rollback_may_undo_something() {
    let many = |book: &mut Book| {
        for number in 0..2 * LEVELS_MAX {
            run(book, &[act(Act::Savepoint(named(&format!("s{number}"))))]);
        }
    };
    let mut book = Book::default();
    many(&mut book);
    run(&mut book, &[act(Act::RollbackTo(named("s3"))), set("a", 1)]);
    commit(&mut book);
    assert_eq!((texts(&book).len(), book.held().is_empty()), (1, true));
    many(&mut book);
    run(&mut book, &[set("a", 2), act(Act::RollbackTo(named("s400")))]);
    assert_eq!(book.held(), Reasons::OTHER);
    commit(&mut book);
    assert_eq!(book.held(), Reasons::OTHER);
}

#[test]
fn savepoints_that_are_released_one_by_one_take_no_room() {
    let mut book = Book::default();
    for _ in 0..10 * LEVELS_MAX {
        run(&mut book, &[act(Act::Savepoint(named("s"))), act(Act::Release(named("s")))]);
    }
    run(
        &mut book,
        &[set("a", 1), act(Act::Savepoint(named("z"))), reset("a"), act(Act::RollbackTo(named("z")))],
    );
    commit(&mut book);
    assert_eq!((texts(&book), book.held().is_empty()), (vec!["SET a = 1".to_owned()], true));
}

#[test]
fn what_exceeds_a_bound_pins() {
    let mut book = Book::default();
    for number in 0..=CARRIED_MAX {
        run(&mut book, &[set(&format!("x.y{number}"), 1)]);
        book.ready(Status::Idle, 0);
    }
    assert_eq!((texts(&book).len(), book.held()), (CARRIED_MAX, Reasons::OTHER));
    let mut book = Book::default();
    for number in 0..=CHANGES_MAX {
        run(&mut book, &[reset(&format!("x.y{number}"))]);
    }
    assert_eq!(book.held(), Reasons::OTHER);
}

#[test]
fn discard_all_forgets_what_it_discards_and_keeps_what_it_leaves() {
    let mut book = Book::default();
    run(&mut book, &[set("a", 1), leaves(Reasons::LOAD.union(Reasons::LISTEN), Reasons::NONE)]);
    book.ready(Status::Idle, 0);
    let releases = Reasons::ALL.without(Reasons::LOAD);
    let discard = Effect { act: Act::DiscardAll, leaves: Effects { pins: Reasons::NONE, releases } };
    run(&mut book, std::slice::from_ref(&discard));
    assert_eq!((texts(&book).len(), book.held()), (1, Reasons::LOAD));
    book.lost();
    assert_eq!(texts(&book).len(), 1);
    run(&mut book, &[discard]);
    book.fail();
    book.ready(Status::Idle, 0);
    assert_eq!(texts(&book).len(), 0);
}

/// PostgreSQL's transactions in the plainest way: a copy of everything for each savepoint.
#[derive(Clone, Debug, Default, PartialEq)]
struct World {
    settings: std::collections::BTreeMap<String, String>,
    local: std::collections::BTreeMap<String, String>,
    listens: bool,
}

#[derive(Default)]
struct Oracle {
    kept: World,
    open: World,
    savepoints: Vec<(String, World)>,
    in_block: bool,
    failed: bool,
}

impl Oracle {
    fn end(&mut self, committed: bool) {
        if committed {
            self.kept = self.open.clone();
            self.kept.local.clear();
        }
        self.open = self.kept.clone();
        self.savepoints.clear();
        (self.in_block, self.failed) = (false, false);
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|(known, _)| known == name)
    }
}

/// A small generator of numbers (SplitMix64), so that a failure is found again by its seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// One random statement, done by both. In a failed transaction only what ends it, or a part of it, succeeds.
fn step(chance: &mut Chance, oracle: &mut Oracle, book: &mut Book) {
    let name = ["a", "b", "x.y"][chance.below(3) as usize].to_owned();
    let savepoint = ["s", "t", "u"][chance.below(3) as usize].to_owned();
    let value = chance.below(4);
    let kind = chance.below(13);
    if oracle.failed && !matches!(kind, 7 | 9 | 10) {
        return book.fail();
    }
    match kind {
        0 | 1 => {
            book.confirm(&set(&name, value), b"SET");
            oracle.open.local.remove(&name);
            oracle.open.settings.insert(name.clone(), format!("SET {name} = {value}"));
        }
        2 => {
            book.confirm(&reset(&name), b"RESET");
            oracle.open.local.remove(&name);
            oracle.open.settings.remove(&name);
        }
        3 => {
            book.confirm(&changes(vec![Change::ResetAll]), b"RESET");
            oracle.open.local.clear();
            oracle.open.settings.clear();
        }
        4 => {
            let text = format!("SET LOCAL {name} = {value}");
            let change = Change::Local { name: name.clone(), text: text.clone().into() };
            book.confirm(&changes(vec![change]), b"SET");
            oracle.open.local.insert(name, text);
        }
        5 => oracle.in_block = true,
        6 if oracle.in_block => {
            book.confirm(&act(Act::Savepoint(named(&savepoint))), b"SAVEPOINT");
            oracle.savepoints.push((savepoint, oracle.open.clone()));
        }
        7 => {
            if let Some(index) = oracle.position(&savepoint) {
                book.confirm(&act(Act::RollbackTo(named(&savepoint))), b"ROLLBACK");
                oracle.savepoints.truncate(index + 1);
                oracle.open = oracle.savepoints[index].1.clone();
                oracle.failed = false;
            } else {
                error(oracle, book);
            }
        }
        8 => match oracle.position(&savepoint) {
            Some(index) => {
                book.confirm(&act(Act::Release(named(&savepoint))), b"RELEASE");
                oracle.savepoints.truncate(index);
            }
            None => error(oracle, book),
        },
        9 | 10 => {
            let committed = kind == 9 && !oracle.failed;
            book.confirm(&act(Act::End), if committed { b"COMMIT" } else { b"ROLLBACK" });
            oracle.end(committed);
        }
        11 => {
            book.confirm(&leaves(Reasons::LISTEN, Reasons::NONE), b"LISTEN");
            oracle.open.listens = true;
        }
        12 if chance.below(2) == 0 => {
            book.confirm(&leaves(Reasons::NONE, Reasons::LISTEN), b"UNLISTEN");
            oracle.open.listens = false;
        }
        _ => error(oracle, book),
    }
}

fn error(oracle: &mut Oracle, book: &mut Book) {
    book.fail();
    oracle.failed = true;
}

fn ready(oracle: &mut Oracle, book: &mut Book) {
    let status = match (oracle.in_block, oracle.failed) {
        (true, true) => Status::Failed,
        (true, false) => Status::Transaction,
        (false, _) => Status::Idle,
    };
    if !oracle.in_block {
        oracle.end(!oracle.failed);
    }
    book.ready(status, 0);
}

fn assert_alike(seed: u64, oracle: &Oracle, book: &Book) {
    let kept: std::collections::BTreeMap<String, String> = book
        .settings()
        .iter()
        .map(|setting| (setting.name.clone(), String::from_utf8_lossy(&setting.text).into_owned()))
        .collect();
    assert_eq!(kept, oracle.kept.settings, "seed {seed}");
    for name in ["a", "b", "x.y"] {
        let known = book.in_force(name).map(|text| String::from_utf8_lossy(text).into_owned());
        let open = oracle.open.local.get(name).or_else(|| oracle.open.settings.get(name));
        assert_eq!(known.as_ref(), open, "seed {seed}: {name}");
    }
    let may_listen = oracle.kept.listens || oracle.open.listens;
    assert!(!may_listen || book.held().contains(Reasons::LISTEN), "seed {seed}: not pinned");
    assert!(!book.held().contains(Reasons::OTHER), "seed {seed}: unsure without a reason");
}

#[test]
fn random_histories_end_as_in_postgresql() {
    for seed in 0..20_000 {
        let (mut oracle, mut book, mut chance) = (Oracle::default(), Book::default(), Chance(seed));
        for _ in 0..chance.below(40) {
            step(&mut chance, &mut oracle, &mut book);
            assert_alike(seed, &oracle, &book);
            // Behind an error the server skips to the end of the segment.
            if chance.below(3) == 0 || book.has_failed {
                ready(&mut oracle, &mut book);
                assert_alike(seed, &oracle, &book);
            }
        }
        if chance.below(8) == 0 {
            book.lost();
            oracle.end(false);
            assert_alike(seed, &oracle, &book);
        }
    }
}
