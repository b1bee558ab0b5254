//! What a client and a server agree on at login, and the status flags of an answer.
//!
//! A capability changes the layout of packets, so each side of a proxy has a set of its own. The lower 32
//! bits are MySQL's, the upper ones MariaDB's; MariaDB's exist only where both sides leave
//! [`Capabilities::MYSQL`] out.

use std::ops::{BitAnd, BitOr};

/// A set of capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// The peer is no MariaDB: the upper 32 bits do not exist (`CLIENT_LONG_PASSWORD` of old).
    pub const MYSQL: Self = Self(1);
    /// An UPDATE reports the rows that it found, and not only those that it changed.
    pub const FOUND_ROWS: Self = Self(1 << 1);
    /// The response to the handshake names a database.
    pub const CONNECT_WITH_DB: Self = Self(1 << 3);
    /// Packets are compressed by zlib after the login.
    pub const COMPRESS: Self = Self(1 << 5);
    /// LOAD DATA LOCAL may ask the client for a file.
    pub const LOCAL_FILES: Self = Self(1 << 7);
    /// The protocol of version 4.1 and later, the only one that this module speaks.
    pub const PROTOCOL_41: Self = Self(1 << 9);
    /// The connection turns to TLS after the client's short first packet.
    pub const SSL: Self = Self(1 << 11);
    /// Statuses carry transaction flags.
    pub const TRANSACTIONS: Self = Self(1 << 13);
    /// The answer to a scramble has a length of its own.
    pub const SECURE_CONNECTION: Self = Self(1 << 15);
    /// A query may hold several statements.
    pub const MULTI_STATEMENTS: Self = Self(1 << 16);
    /// A query may have several results.
    pub const MULTI_RESULTS: Self = Self(1 << 17);
    /// An executed statement may have several results.
    pub const PS_MULTI_RESULTS: Self = Self(1 << 18);
    /// Authentication plug-ins are named.
    pub const PLUGIN_AUTH: Self = Self(1 << 19);
    /// The client sends attributes of its connection.
    pub const CONNECT_ATTRS: Self = Self(1 << 20);
    /// The answer to a scramble has a length-encoded length.
    pub const PLUGIN_AUTH_LENENC: Self = Self(1 << 21);
    /// A client with an expired password may log in to change it.
    pub const CAN_HANDLE_EXPIRED_PASSWORDS: Self = Self(1 << 22);
    /// OK packets tell changes of the session.
    pub const SESSION_TRACK: Self = Self(1 << 23);
    /// No EOF packets: metadata ends by its count, rows end by an OK packet that begins with 0xfe.
    pub const DEPRECATE_EOF: Self = Self(1 << 24);
    /// Metadata may be left out of a result (MySQL's own way).
    pub const OPTIONAL_RESULTSET_METADATA: Self = Self(1 << 25);
    /// Packets are compressed by zstd after the login.
    pub const ZSTD_COMPRESSION: Self = Self(1 << 26);
    /// A query begins with its attributes.
    pub const QUERY_ATTRIBUTES: Self = Self(1 << 27);
    /// Long statements report their progress in ERR packets of code 0xffff (MariaDB).
    pub const PROGRESS: Self = Self(1 << 32);
    /// COM_STMT_BULK_EXECUTE (MariaDB).
    pub const BULK_OPERATIONS: Self = Self(1 << 34);
    /// Column definitions have a further field (MariaDB).
    pub const EXTENDED_METADATA: Self = Self(1 << 35);
    /// Metadata that the client knows is left out of a prepared statement's result (MariaDB).
    pub const CACHE_METADATA: Self = Self(1 << 36);
    /// Each row of a bulk execution has a result of its own (MariaDB).
    pub const BULK_UNIT_RESULTS: Self = Self(1 << 37);

    /// What a proxy must not agree to, since [`super::response`] can't follow it: compression, and metadata
    /// that MySQL's own way leaves out.
    pub const NOT_FOLLOWED: Self =
        Self(Self::COMPRESS.0 | Self::ZSTD_COMPRESSION.0 | Self::OPTIONAL_RESULTSET_METADATA.0);

    /// Whether all of `other` are in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// This set without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// MySQL's lower half.
    #[must_use]
    pub const fn lower(self) -> u32 {
        self.0 as u32
    }

    /// MariaDB's upper half.
    #[must_use]
    pub const fn upper(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The set of both halves; the upper one counts only without [`Capabilities::MYSQL`].
    #[must_use]
    pub(super) const fn of(lower: u32, upper: u32) -> Self {
        let lower = lower as u64;
        if lower & Self::MYSQL.0 == 0 { Self(lower | (upper as u64) << 32) } else { Self(lower) }
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Capabilities {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The status flags of an OK or EOF packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u16);

impl Status {
    /// A transaction is open.
    pub const IN_TRANSACTION: Self = Self(1);
    /// `autocommit` is on.
    pub const AUTOCOMMIT: Self = Self(1 << 1);
    /// Another result follows.
    pub const MORE_RESULTS: Self = Self(1 << 3);
    /// The executed statement has opened a cursor.
    pub const CURSOR_EXISTS: Self = Self(1 << 6);
    /// The cursor's last row has been sent.
    pub const LAST_ROW_SENT: Self = Self(1 << 7);
    /// The current database has been dropped.
    pub const DATABASE_DROPPED: Self = Self(1 << 8);
    /// `sql_mode` has NO_BACKSLASH_ESCAPES.
    pub const NO_BACKSLASH_ESCAPES: Self = Self(1 << 9);
    /// The statement's metadata has changed since it was prepared.
    pub const METADATA_CHANGED: Self = Self(1 << 10);
    /// The result holds the values of OUT parameters.
    pub const OUT_PARAMETERS: Self = Self(1 << 12);
    /// The open transaction is a read-only one.
    pub const IN_READ_ONLY_TRANSACTION: Self = Self(1 << 13);
    /// The packet tells changes of the session.
    pub const SESSION_STATE_CHANGED: Self = Self(1 << 14);
    /// `sql_mode` has ANSI_QUOTES (MariaDB).
    pub const ANSI_QUOTES: Self = Self(1 << 15);
    /// What a status says of the session. The rest is about one statement.
    pub const OF_SESSION: Self = Self(
        Self::IN_TRANSACTION.0
            | Self::AUTOCOMMIT.0
            | Self::NO_BACKSLASH_ESCAPES.0
            | Self::IN_READ_ONLY_TRANSACTION.0
            | Self::ANSI_QUOTES.0,
    );

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Status {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
