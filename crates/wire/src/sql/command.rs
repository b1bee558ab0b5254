//! Transaction control and settings, by their whole grammar (PostgreSQL's `gram.y`: `TransactionStmt`,
//! `VariableSetStmt`, `VariableResetStmt`, `DiscardStmt`, `DeallocateStmt`).

use std::borrow::Cow;

use super::effects::{Effects, Pins};
use super::keyword::Keyword as K;
use super::lexer::TokenKind;
use super::statement::{BeginTag, Kind};
use super::words::Words;

/// The command that these words are, all of them; `None` if they aren't exactly one of this file's.
pub(super) fn kind<'a>(mut words: Words<'a, '_>) -> Option<Kind<'a>> {
    let kind = match words.keyword() {
        K::Begin => {
            words.take_any(&[K::Work, K::Transaction]);
            modes(&mut words, Need::Any)?;
            Kind::Begin { tag: BeginTag::Begin }
        }
        K::Start if words.take(K::Transaction) => {
            modes(&mut words, Need::Any)?;
            Kind::Begin { tag: BeginTag::StartTransaction }
        }
        K::Commit if words.take(K::Prepared) => literal(&mut words, Kind::CommitPrepared)?,
        K::Commit | K::End => Kind::Commit { chain: chain(&mut words)? },
        K::Rollback if words.take(K::Prepared) => literal(&mut words, Kind::RollbackPrepared)?,
        first @ (K::Rollback | K::Abort) => rollback(&mut words, first)?,
        K::Savepoint => Kind::Savepoint { name: words.name()? },
        K::Release => Kind::Release { name: savepoint(&mut words)? },
        K::Prepare if words.take(K::Transaction) => literal(&mut words, Kind::PrepareTransaction)?,
        K::Set => return set(words),
        K::Reset => reset(&mut words)?,
        K::Discard => match words.keyword() {
            K::All => Kind::DiscardAll,
            K::Plans | K::Sequences | K::Temp | K::Temporary => Kind::DiscardOther,
            _ => return None,
        },
        K::Deallocate => deallocate(&mut words)?,
        _ => return None,
    };
    words.at_end().then_some(kind)
}

/// Adds what the statement does to its session by being this command.
pub(super) fn effects(mut words: Words<'_, '_>, kind: &Kind<'_>, effects: &mut Effects) {
    let role = |name: &[u8]| match name {
        b"role" => Some(Pins::ROLE),
        b"session_authorization" => Some(Pins::SESSION_AUTHORIZATION),
        _ => None,
    };
    match kind {
        // What was loaded stays loaded, and the seed of `random()` isn't a setting.
        Kind::DiscardAll => effects.release(Pins::ALL.without(Pins::LOAD).without(Pins::SEED)),
        Kind::Deallocate { name: None } => effects.release(Pins::PREPARE),
        Kind::Reset { name } => {
            if let Some(pin) = role(name) {
                effects.release(pin);
            }
        }
        Kind::Set { name } => {
            if let Some(pin) = role(name) {
                if resets_role(words) { effects.release(pin) } else { effects.pin(pin) }
            }
        }
        Kind::DiscardOther => {
            words.next();
            if words.take_any(&[K::Temp, K::Temporary]) {
                effects.release(Pins::TEMPORARY);
            }
        }
        Kind::Other => match words.keyword() {
            // What it sets is what holds at the moment, which no text shows.
            K::Set if is_from_current(words.clone()) => effects.pin(Pins::OTHER),
            K::Listen => effects.pin(Pins::LISTEN),
            K::Load => effects.pin(Pins::LOAD),
            K::Prepare => effects.pin(Pins::PREPARE),
            K::Close if words.take(K::All) && words.at_end() => effects.release(Pins::HOLD_CURSOR),
            K::Unlisten => {
                let all = words.next().is_some_and(|token| token.kind == TokenKind::Operator);
                if all && words.at_end() {
                    effects.release(Pins::LISTEN);
                }
            }
            _ => {}
        },
        _ => {}
    }
}

/// Whether `SET ROLE` or `SET SESSION AUTHORIZATION` ends with the value that undoes it.
fn resets_role(mut words: Words<'_, '_>) -> bool {
    let mut last = K::None;
    while let Some(token) = words.next() {
        last = token.keyword;
    }
    // `SET role TO 'none'` does so too; taking it for a role pins a session too many, which is harmless.
    words.at_end() && matches!(last, K::NoneWord | K::Default)
}

/// Whether a SET ends with `FROM CURRENT`.
fn is_from_current(mut words: Words<'_, '_>) -> bool {
    let mut last = [K::None; 2];
    while let Some(token) = words.next() {
        last = [last[1], token.keyword];
    }
    last == [K::From, K::Current]
}

/// Whether at least one transaction mode has to follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Any,
    One,
}

/// `transaction_mode_list`: modes with or without commas between them.
fn modes(words: &mut Words<'_, '_>, need: Need) -> Option<()> {
    let mut wanted = need == Need::One;
    while wanted || !words.at_end() {
        let known = match words.keyword() {
            K::Isolation => words.take(K::Level) && level(words),
            K::Read => words.take_any(&[K::Only, K::Write]),
            K::Not => words.take(K::Deferrable),
            K::Deferrable => true,
            _ => false,
        };
        if !known {
            return None;
        }
        wanted = words.take_kind(TokenKind::Comma);
    }
    Some(())
}

fn level(words: &mut Words<'_, '_>) -> bool {
    match words.keyword() {
        K::Serializable => true,
        K::Repeatable => words.take(K::Read),
        K::Read => words.take_any(&[K::Committed, K::Uncommitted]),
        _ => false,
    }
}

/// `[WORK | TRANSACTION] [AND [NO] CHAIN]`.
fn chain(words: &mut Words<'_, '_>) -> Option<bool> {
    words.take_any(&[K::Work, K::Transaction]);
    if !words.take(K::And) {
        return Some(false);
    }
    let chain = !words.take(K::No);
    words.take(K::Chain).then_some(chain)
}

fn rollback<'a>(words: &mut Words<'a, '_>, first: K) -> Option<Kind<'a>> {
    let mut ahead = words.clone();
    ahead.take_any(&[K::Work, K::Transaction]);
    if first == K::Rollback && ahead.take(K::To) {
        *words = ahead;
        return Some(Kind::RollbackTo { savepoint: savepoint(words)? });
    }
    Some(Kind::Rollback { chain: chain(words)? })
}

/// `[SAVEPOINT] name`; a savepoint may be called so itself.
fn savepoint<'a>(words: &mut Words<'a, '_>) -> Option<Cow<'a, [u8]>> {
    let mut ahead = words.clone();
    if ahead.take(K::Savepoint) && !ahead.at_end() {
        *words = ahead;
    }
    words.name()
}

fn literal<'a>(words: &mut Words<'_, '_>, kind: Kind<'a>) -> Option<Kind<'a>> {
    words.take_kind(TokenKind::String).then_some(kind)
}

fn deallocate<'a>(words: &mut Words<'a, '_>) -> Option<Kind<'a>> {
    let mut ahead = words.clone();
    if ahead.take(K::Prepare) && !ahead.at_end() {
        *words = ahead;
    }
    if words.take(K::All) {
        return Some(Kind::Deallocate { name: None });
    }
    Some(Kind::Deallocate { name: Some(words.name()?) })
}

/// How long a setting is to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Session,
    Local,
}

fn set<'a>(mut words: Words<'a, '_>) -> Option<Kind<'a>> {
    if words.take_all(&[K::Session, K::Characteristics, K::As, K::Transaction]) {
        modes(&mut words, Need::One)?;
        return words.at_end().then_some(Kind::Set { name: Cow::Borrowed(b"session characteristics") });
    }
    let mut ahead = words.clone();
    let scope = if ahead.take(K::Local) { Scope::Local } else { Scope::Session };
    if scope == Scope::Local || (ahead.take(K::Session) && !is_setting_called_session(&words)) {
        words = ahead;
    }
    if words.take(K::Transaction) {
        modes(&mut words, Need::One)?;
        return words.at_end().then_some(Kind::SetTransaction);
    }
    let name = setting(&mut words)?;
    Some(match scope {
        Scope::Local => Kind::SetLocal { name },
        Scope::Session => Kind::Set { name },
    })
}

/// `SET session …`: `SESSION` is the scope unless `AUTHORIZATION`, `TO` or `=` follows.
fn is_setting_called_session(words: &Words<'_, '_>) -> bool {
    let mut ahead = words.clone();
    ahead.next();
    ahead.take(K::Authorization) || assignment(&mut ahead)
}

/// `TO` or `=`.
fn assignment(words: &mut Words<'_, '_>) -> bool {
    words.take(K::To) || words.take_operator(b"=")
}

/// The setting's name, behind which a value of the right form must follow.
fn setting<'a>(words: &mut Words<'a, '_>) -> Option<Cow<'a, [u8]>> {
    let (name, valid): (&[u8], bool) = if words.take_all(&[K::Time, K::Zone]) {
        (b"timezone", zone(words))
    } else if words.take_all(&[K::Session, K::Authorization]) {
        (b"session_authorization", value(words))
    } else if words.take_all(&[K::Xml, K::Option]) {
        (b"xmloption", value(words))
    } else {
        let mut ahead = words.clone();
        let keyword = ahead.keyword();
        if assignment(&mut ahead.clone()) || !matches!(keyword, K::Names | K::Schema | K::Role) {
            let name = words.qualified()?;
            return (assignment(words) && values(words)).then_some(name);
        }
        *words = ahead;
        match keyword {
            // `SET NAMES` alone is allowed: back to the default.
            K::Names => (b"client_encoding", words.at_end() || value(words)),
            K::Schema => (b"search_path", words.take_kind(TokenKind::String)),
            _ => (b"role", value(words)),
        }
    };
    (valid && words.at_end_of_head()).then_some(Cow::Borrowed(name))
}

/// One value: a literal, signed or not, or a word.
fn value(words: &mut Words<'_, '_>) -> bool {
    let signed = words.take_operator(b"-") || words.take_operator(b"+");
    match words.next().map(|token| token.kind) {
        Some(TokenKind::Number) => true,
        Some(TokenKind::String | TokenKind::Word | TokenKind::QuotedIdentifier) => !signed,
        _ => false,
    }
}

/// Values with commas between them, as far as the head goes.
fn values(words: &mut Words<'_, '_>) -> bool {
    loop {
        if !value(words) {
            return false;
        }
        if words.at_end_of_head() {
            return true;
        }
        if !words.take_kind(TokenKind::Comma) {
            return false;
        }
    }
}

/// A time zone: a value, or an interval with its field.
fn zone(words: &mut Words<'_, '_>) -> bool {
    let mut ahead = words.clone();
    ahead.next();
    if ahead.take_kind(TokenKind::String) || ahead.take_kind(TokenKind::Open) {
        // `INTERVAL '…' HOUR TO MINUTE`: the server reads the rest.
        while words.next().is_some() {}
        return true;
    }
    value(words)
}

fn reset<'a>(words: &mut Words<'a, '_>) -> Option<Kind<'a>> {
    if words.take(K::All) {
        return Some(Kind::ResetAll);
    }
    let name: Cow<'a, [u8]> = if words.take_all(&[K::Time, K::Zone]) {
        Cow::Borrowed(b"timezone")
    } else if words.take_all(&[K::Session, K::Authorization]) {
        Cow::Borrowed(b"session_authorization")
    } else if words.take_all(&[K::Transaction, K::Isolation, K::Level]) {
        Cow::Borrowed(b"transaction_isolation")
    } else {
        words.qualified()?
    };
    Some(Kind::Reset { name })
}
