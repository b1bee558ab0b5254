//! A statement: which kind it is, and what it does to its session.

use std::borrow::Cow;

use super::effects::Effects;

/// One statement of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Its text, comments included, without the semicolon and the space around it.
    pub text: &'a [u8],
    /// What it is.
    pub kind: Kind<'a>,
    /// What it does to its session, as far as its text says.
    pub effects: Effects,
    /// What it may do to rows and locks.
    pub touches: Touches,
    /// It creates something, or may: where the search path names the temporary schema, a temporary object.
    pub creates: bool,
}

/// What a statement may do to rows and locks, as far as its text tells; what comes later does less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Touches {
    /// It may change anything.
    #[default]
    Anything,
    /// Nothing that is known: no writing keyword, no row locks, no function known to write. A function of the
    /// user's own may write all the same.
    NothingKnown,
    /// Nothing: its first word is SELECT, and it calls only what is known to compute.
    Nothing,
}

/// The command tag with which a transaction's begin is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BeginTag {
    /// `BEGIN`.
    Begin,
    /// `START TRANSACTION`.
    StartTransaction,
}

impl BeginTag {
    /// The tag's text.
    #[must_use]
    pub fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Begin => b"BEGIN",
            Self::StartTransaction => b"START TRANSACTION",
        }
    }
}

/// Where a COPY's data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopyDirection {
    /// `FROM STDIN`: the client sends.
    FromClient,
    /// `TO STDOUT`: the client receives.
    ToClient,
    /// From or to a file or program of the server.
    Server,
}

/// What a statement is. Names are folded as the server does: unquoted ones lowercase, quoted ones as they
/// are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind<'a> {
    /// Nothing but space, comments and semicolons: the text has no statement at all.
    Empty,
    /// `BEGIN` or `START TRANSACTION` with valid modes only.
    Begin {
        /// How it is answered.
        tag: BeginTag,
    },
    /// `COMMIT` or `END`; its tag is `COMMIT`, or `ROLLBACK` if the transaction had failed.
    Commit {
        /// `AND CHAIN`.
        chain: bool,
    },
    /// `ROLLBACK` or `ABORT`; its tag is `ROLLBACK`.
    Rollback {
        /// `AND CHAIN`.
        chain: bool,
    },
    /// `ROLLBACK TO`.
    RollbackTo {
        /// The savepoint.
        savepoint: Cow<'a, [u8]>,
    },
    /// `SAVEPOINT`.
    Savepoint {
        /// Its name.
        name: Cow<'a, [u8]>,
    },
    /// `RELEASE SAVEPOINT`.
    Release {
        /// Its name.
        name: Cow<'a, [u8]>,
    },
    /// `PREPARE TRANSACTION`.
    PrepareTransaction,
    /// `COMMIT PREPARED`.
    CommitPrepared,
    /// `ROLLBACK PREPARED`.
    RollbackPrepared,
    /// `SET TRANSACTION` with valid modes only (not `SNAPSHOT`, which can't be put off).
    SetTransaction,
    /// `SET LOCAL`.
    SetLocal {
        /// The setting, such as `timezone` for `TIME ZONE`.
        name: Cow<'a, [u8]>,
    },
    /// `SET` for the session; its tag is `SET`.
    Set {
        /// The setting: `timezone` for `TIME ZONE`, `client_encoding` for `NAMES`, `search_path` for
        /// `SCHEMA`, `session characteristics` for all of these.
        name: Cow<'a, [u8]>,
    },
    /// `RESET` of one setting; its tag is `RESET`.
    Reset {
        /// The setting.
        name: Cow<'a, [u8]>,
    },
    /// `RESET ALL`.
    ResetAll,
    /// `DISCARD ALL`.
    DiscardAll,
    /// `DISCARD PLANS`, `SEQUENCES` or `TEMP`.
    DiscardOther,
    /// `DEALLOCATE`.
    Deallocate {
        /// The statement; `None` is `ALL`.
        name: Option<Cow<'a, [u8]>>,
    },
    /// `COPY`.
    Copy {
        /// Where the data goes.
        direction: CopyDirection,
    },
    /// `EXPLAIN`.
    Explain,
    /// Anything else.
    Other,
    /// The rest of a text whose tokens can't be told. The server refuses such a text as a whole.
    Unlexable,
}

impl Kind<'_> {
    /// Transaction control, settings, or nothing: what doesn't say what a request is about.
    #[must_use]
    pub fn is_control(&self) -> bool {
        !matches!(self, Self::Copy { .. } | Self::Explain | Self::Other | Self::Unlexable)
    }
}

/// A text without any statement.
pub(super) fn empty(sql: &[u8]) -> Statement<'_> {
    Statement {
        text: sql.trim_ascii(),
        kind: Kind::Empty,
        effects: Effects::default(),
        touches: Touches::NothingKnown,
        creates: false,
    }
}
