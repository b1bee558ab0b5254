//! What is typed into the console: commands by their words.
//!
//! The words are PgBouncer's where the meaning is the same. Around them is what drivers send of their own
//! accord, and what has no meaning here but must not fail: SET, BEGIN, COMMIT, comments, nothing at all.

use std::borrow::Cow;

/// Every list that SHOW knows, by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Help,
    Version,
    Config,
    Pools,
    Clients,
    Servers,
    Databases,
    Users,
    Lists,
    State,
    Stats,
    StatsTotals,
    StatsAverages,
    Types,
    Queue,
    Pinned,
}

/// The words behind SHOW.
pub(crate) const LISTS: &[(&str, List)] = &[
    ("HELP", List::Help),
    ("VERSION", List::Version),
    ("CONFIG", List::Config),
    ("POOLS", List::Pools),
    ("CLIENTS", List::Clients),
    ("SERVERS", List::Servers),
    ("DATABASES", List::Databases),
    ("USERS", List::Users),
    ("LISTS", List::Lists),
    ("STATE", List::State),
    ("STATS", List::Stats),
    ("STATS_TOTALS", List::StatsTotals),
    ("STATS_AVERAGES", List::StatsAverages),
    ("TYPES", List::Types),
    ("QUEUE", List::Queue),
    ("PINNED", List::Pinned),
];

/// Whom to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Victims {
    Client(u64),
    Database(String),
    Everybody,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Nothing: an empty text, or a comment.
    Empty,
    Show(List),
    /// A setting, as drivers ask for it.
    Setting(String),
    /// To change this key, or a setting that drivers change of their own accord.
    Set(String),
    Pause(Option<String>),
    Resume(Option<String>),
    Kill(Victims),
    Reload,
    Reconnect,
    Shutdown,
    ShutdownNow,
    /// Has no meaning here, and this is what drivers expect to hear.
    Nothing(&'static str),
}

/// Why a text is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoCommand {
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

/// What a text says.
pub(crate) fn parse(text: &str) -> Result<Command, NoCommand> {
    let words = words(text);
    let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
    let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
    let argument = |index: usize| words.get(index).map(|word| word.clone().into_owned());
    Ok(match upper.as_slice() {
        [] => Command::Empty,
        ["SHOW", word] | ["SHOW", "ALL", word] if list(word).is_some() => {
            list(word).map_or(Command::Empty, Command::Show)
        }
        ["SHOW"] => Command::Show(List::Help),
        ["SHOW", ..] => Command::Setting(upper[1..].join(" ").to_ascii_lowercase()),
        ["PAUSE"] => Command::Pause(None),
        ["PAUSE", _] => Command::Pause(argument(1)),
        ["RESUME"] => Command::Resume(None),
        ["RESUME", _] => Command::Resume(argument(1)),
        ["KILL"] => Command::Kill(Victims::Everybody),
        ["KILL" | "KILL_CLIENT", id] if id.parse::<u64>().is_ok() => {
            Command::Kill(Victims::Client(id.parse().unwrap_or_default()))
        }
        ["KILL", _] => Command::Kill(Victims::Database(argument(1).unwrap_or_default())),
        ["RELOAD"] => Command::Reload,
        ["RECONNECT"] => Command::Reconnect,
        ["SHUTDOWN"] | ["SHUTDOWN", "WAIT_FOR_CLIENTS" | "WAIT_FOR_SERVERS"] => Command::Shutdown,
        ["SHUTDOWN", "IMMEDIATE"] => Command::ShutdownNow,
        ["SET", ..] => Command::Set(set(&words)),
        ["RESET", ..] => Command::Nothing("RESET"),
        ["BEGIN", ..] => Command::Nothing("BEGIN"),
        ["START", "TRANSACTION", ..] => Command::Nothing("START TRANSACTION"),
        ["COMMIT" | "END", ..] => Command::Nothing("COMMIT"),
        ["ROLLBACK" | "ABORT", ..] => Command::Nothing("ROLLBACK"),
        ["DISCARD", "ALL"] => Command::Nothing("DISCARD ALL"),
        ["DEALLOCATE", "ALL"] => Command::Nothing("DEALLOCATE ALL"),
        _ => {
            return Err(NoCommand {
                message: format!("the console has no command {:?}", words.join(" ")),
                hint: "SHOW HELP lists the commands. The console is not a database: it runs no SQL.",
            });
        }
    })
}

/// What a SET changes: the word behind it, but for LOCAL and SESSION, up to a sign.
fn set(words: &[Cow<'_, str>]) -> String {
    let is_scope =
        |word: &&Cow<'_, str>| ["LOCAL", "SESSION"].iter().any(|scope| word.eq_ignore_ascii_case(scope));
    let key = words.iter().skip(1).find(|word| !is_scope(word)).map_or("", |word| word);
    key.split('=').next().unwrap_or("").to_ascii_lowercase()
}

fn list(word: &str) -> Option<List> {
    LISTS.iter().find(|(known, _)| *known == word).map(|(_, list)| *list)
}

/// The commands of a simple query: what semicolons part, outside quotes and comments. At least one.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut rest) = (0, text);
    while let Some((token, length)) = token(rest) {
        let at = text.len() - rest.len();
        if token == Token::End {
            parts.push(&text[start..at]);
            start = at + length;
        }
        rest = &rest[length..];
    }
    parts.push(&text[start..]);
    // Nothing between two semicolons is nothing; only a text without any command is one that is empty.
    parts.retain(|part| !words(part).is_empty());
    if parts.is_empty() {
        parts.push("");
    }
    parts
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(Cow<'a, str>),
    /// Space or a comment.
    Nothing,
    /// A semicolon.
    End,
}

fn words(text: &str) -> Vec<Cow<'_, str>> {
    let (mut words, mut rest) = (Vec::new(), text);
    while let Some((token, length)) = token(rest) {
        if let Token::Word(word) = token {
            words.push(word);
        }
        rest = &rest[length..];
    }
    words
}

/// The first token and its length in bytes.
fn token(text: &str) -> Option<(Token<'_>, usize)> {
    let first = text.chars().next()?;
    Some(match first {
        ';' => (Token::End, 1),
        letter if letter.is_whitespace() => (Token::Nothing, letter.len_utf8()),
        _ if text.starts_with("--") => (Token::Nothing, text.find('\n').unwrap_or(text.len())),
        _ if text.starts_with("/*") => (Token::Nothing, text.find("*/").map_or(text.len(), |end| end + 2)),
        '"' | '\'' => quoted(text, first),
        _ => {
            let ends = |letter: char| letter.is_whitespace() || matches!(letter, ';' | '"' | '\'');
            let length = text.find(ends).unwrap_or(text.len());
            (Token::Word(Cow::Borrowed(&text[..length])), length)
        }
    })
}

/// A word in quotes; a quote in it is doubled.
fn quoted(text: &str, quote: char) -> (Token<'_>, usize) {
    let mut word = String::new();
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != quote {
            word.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            word.push(quote);
        } else {
            return (Token::Word(Cow::Owned(word)), at + 1);
        }
    }
    (Token::Word(Cow::Owned(word)), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_by_their_words_in_any_case() {
        let parsed = |text| parse(text).unwrap();
        assert_eq!(parsed("show pools"), Command::Show(List::Pools));
        assert_eq!(parsed(" /* a tag */ SHOW\n Stats_Totals ; "), Command::Show(List::StatsTotals));
        assert_eq!(
            parsed("SHOW transaction isolation level"),
            Command::Setting("transaction isolation level".into())
        );
        assert_eq!(parsed("PAUSE"), Command::Pause(None));
        assert_eq!(parsed("pause \"My \"\"Shop\""), Command::Pause(Some("My \"Shop".into())));
        assert_eq!(parsed("RESUME Shop"), Command::Resume(Some("Shop".into())));
        assert_eq!(parsed("KILL 17"), Command::Kill(Victims::Client(17)));
        assert_eq!(parsed("KILL_CLIENT 17"), Command::Kill(Victims::Client(17)));
        assert_eq!(parsed("KILL shop"), Command::Kill(Victims::Database("shop".into())));
        assert_eq!(parsed("SET extra_float_digits = 3"), Command::Set("extra_float_digits".into()));
        assert_eq!(parsed("set session Connections=5"), Command::Set("connections".into()));
        assert_eq!(parsed("SET"), Command::Set(String::new()));
        for nothing in ["", " ; ", "-- ping", "/* x", "\n"] {
            assert_eq!(parsed(nothing), Command::Empty, "{nothing:?}");
        }
    }

    #[test]
    fn what_is_no_command_is_refused_with_a_hint() {
        for text in ["SELECT 1", "PAUSE a b", "SHUTDOWN now please", "DROP DATABASE gatekeeper"] {
            assert!(parse(text).unwrap_err().hint.contains("SHOW HELP"), "{text}");
        }
    }

    #[test]
    fn a_text_may_hold_several_commands() {
        assert_eq!(split("SHOW POOLS"), ["SHOW POOLS"]);
        assert_eq!(split("SHOW POOLS;"), ["SHOW POOLS"]);
        assert_eq!(split("SHOW POOLS; SHOW STATS ;\n"), ["SHOW POOLS", " SHOW STATS "]);
        assert_eq!(split("PAUSE \"a;b\" -- c;d\n; RESUME"), ["PAUSE \"a;b\" -- c;d\n", " RESUME"]);
        assert_eq!(split(""), [""]);
        assert_eq!(split(";-- x\n;"), [""]);
    }

    #[test]
    fn no_text_makes_it_stumble() {
        for text in ["\"", "'", "\"\"", "/", "-", "/*", "*/", "ü\"ü", "a'b", "\u{2003};\u{2003}"] {
            let _ = (split(text), parse(text));
        }
    }
}
