//! SQL read just far enough to name a request's type and to see what it does to its session.
//!
//! No parser: a lexer ([`lexer`]) that knows where literals, comments and statements end, and readers over
//! its tokens: which statements a text holds ([`statements`]) and what each does ([`statement`]), what shape
//! they have without any of their values ([`mod@fingerprint`]), and what an application says about itself in
//! comments ([`comment`]). [`describe`] does all of it in one pass.
//!
//! Limits of reading text alone: a function, trigger, rule or `DO` block may do anything without its text
//! saying so. What this module reports is what the text says.

mod command;
pub mod comment;
mod describe;
pub mod effects;
pub mod fingerprint;
mod harmless;
mod keyword;
pub mod lexer;
mod observe;
mod split;
pub mod statement;
mod words;

pub use comment::Tags;
pub use describe::{Description, MAX_STATEMENTS, describe};
pub use effects::{Effects, Pins};
pub use fingerprint::fingerprint;
pub use lexer::Unlexable;
pub use split::{Statements, statements};
pub use statement::{Kind, Statement, Touches};

/// Whose SQL it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres {
        /// The session's `standard_conforming_strings`: off, a backslash escapes in plain strings too.
        standard_strings: bool,
    },
    /// MySQL and MariaDB.
    MySql {
        /// What double quotes hold: the session's `sql_mode` decides by ANSI_QUOTES.
        double_quotes: DoubleQuotes,
        /// What a backslash in a string does: the session's `sql_mode` decides by NO_BACKSLASH_ESCAPES.
        backslashes: Backslashes,
    },
}

impl Dialect {
    /// PostgreSQL with its defaults.
    pub const POSTGRES: Self = Self::Postgres { standard_strings: true };
    /// MySQL with its defaults.
    pub const MYSQL: Self =
        Self::MySql { double_quotes: DoubleQuotes::Strings, backslashes: Backslashes::Escape };
}

/// What stands in double quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DoubleQuotes {
    /// Strings, as MySQL has it by default.
    Strings,
    /// Identifiers.
    Identifiers,
}

/// What a backslash in a string does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backslashes {
    /// It escapes the next character, as MySQL has it by default.
    Escape,
    /// It is a character like any other.
    Plain,
}

/// Whether texts in this `client_encoding`, or MySQL's `character_set_client`, can be read byte by byte.
///
/// In the encodings that only clients may use (Shift JIS, Big5, GBK, UHC, GB18030, JOHAB) the second byte
/// of a character can be a backslash, so that the end of a string can't be told without decoding. Texts of
/// such sessions must be treated as unreadable: no fingerprint, and the session's state unknown.
#[must_use]
pub fn is_readable_encoding(client_encoding: &str) -> bool {
    let name: String =
        client_encoding.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    !matches!(
        name.as_str(),
        "sjis"
            | "cp932"
            | "shiftjis"
            | "mskanji"
            | "win932"
            | "windows932"
            | "shiftjis2004"
            | "big5"
            | "win950"
            | "windows950"
            | "gbk"
            | "win936"
            | "windows936"
            | "uhc"
            | "win949"
            | "windows949"
            | "gb18030"
            | "johab"
    )
}
