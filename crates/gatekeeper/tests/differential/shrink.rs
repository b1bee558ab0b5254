//! Makes a script that differs shorter for as long as it still differs: fewer turns, fewer messages.

use crate::script::{Message, Script, Turn};
use crate::stage::Stage;

/// The most attempts at one script.
const ATTEMPTS_MAX: usize = 400;

/// The shortest script that was found to differ; `None` if the whole one doesn't differ on a new gate.
pub(crate) fn shrunk(stage: &mut Stage, script: &Script) -> Option<Script> {
    let mut attempts = 0;
    let mut differs = |script: &Script| {
        attempts += 1;
        attempts <= ATTEMPTS_MAX && stage.still_differs(script)
    };
    if !differs(script) {
        return None;
    }
    let mut script = script.clone();
    let mut size = script.turns.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        while start < script.turns.len() {
            let mut fewer = script.clone();
            fewer.turns.drain(start..(start + size).min(script.turns.len()));
            if differs(&fewer) {
                script = fewer;
            } else {
                start += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    for turn in (0..script.turns.len()).rev() {
        for message in (0..script.turns[turn].messages.len()).rev() {
            let mut fewer = script.clone();
            fewer.turns[turn].messages.remove(message);
            if !fewer.turns[turn].messages.is_empty() && differs(&fewer) {
                script = fewer;
            }
        }
    }
    for turn in 0..script.turns.len() {
        for message in 0..script.turns[turn].messages.len() {
            while let Some(shorter) = fewer_statements(&script, turn, message).into_iter().find(&mut differs)
            {
                script = shorter;
            }
        }
    }
    Some(script)
}

/// The script with one statement less in a text, for each of them.
fn fewer_statements(script: &Script, turn: usize, message: usize) -> Vec<Script> {
    let Message::Query(sql) = &script.turns[turn].messages[message] else { return Vec::new() };
    let statements: Vec<&str> = sql.split("; ").collect();
    if statements.len() < 2 {
        return Vec::new();
    }
    let without = |left: usize| {
        let kept = statements.iter().enumerate().filter(|(index, _)| *index != left);
        let mut fewer = script.clone();
        fewer.turns[turn].messages[message] =
            Message::Query(kept.map(|(_, text)| *text).collect::<Vec<_>>().join("; "));
        fewer
    };
    (0..statements.len()).map(without).collect()
}

/// Scripts one after the other as one script: the sessions of the next one log in anew.
pub(crate) fn joined(history: &[Script], last: &Script) -> Script {
    let mut whole = Script { connections: last.connections, turns: Vec::new() };
    for script in history.iter().chain([last]) {
        for session in 0..script.sessions() {
            let end = [Message::Sync, Message::Query("ROLLBACK".to_owned())];
            whole.turns.push(Turn { session, messages: end.to_vec() });
            whole.turns.push(Turn { session, messages: vec![Message::Again] });
        }
        whole.turns.extend(script.turns.iter().cloned());
    }
    whole
}
