//! Follows the answer of a command to its end, packet by packet, and keeps nothing of it.
//!
//! Where an answer ends depends on the command, on what was agreed on at login, and on status flags. The
//! follower is told each packet's header and the first [`PEEK`] bytes of its payload, and says what the
//! packet is and whose turn it is next. The caller reads the few messages that it needs whole, and passes
//! rows on.
//!
//! States of an answer with results: the first packet (`First`) is OK, ERR, a request for a file, or a count
//! of columns. Definitions follow (`Columns`), then an EOF packet unless it was agreed to leave it out
//! (`ColumnsEnd`), then rows (`Rows`) up to their end. A status with MORE_RESULTS leads back to `First`.

use super::answer::{self, EOF, ERROR, OK, Prepared};
use super::capabilities::{Capabilities, Status};
use super::codec::{Packet, Sequence};
use super::read::Reader;
use super::{Fault, ProtocolError, authentication};

/// The bytes of a payload that the follower has to see, or all of a shorter one.
pub const PEEK: usize = 32;
/// The most columns of a result; servers allow 4,096.
pub const MAX_COLUMNS: u64 = 65_535;

/// The first byte of a request for a file of the client.
const FILE: u8 = 0xfb;
/// The plug-in message after which the server goes on by itself: the proof of `caching_sha2_password` was
/// enough.
const FAST_PATH: &[u8] = &[authentication::MORE, 3];

/// The form of a command's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expect {
    /// No answer at all.
    Nothing,
    /// One OK, EOF or ERR packet.
    Outcome,
    /// One text without a header.
    Text,
    /// Results: of a query, or of a statement's execution.
    Results,
    /// Results, of which one may be a cursor without rows.
    ResultsOrCursor,
    /// A prepared statement.
    Prepared,
    /// Definitions of columns.
    Columns,
    /// Rows of a cursor.
    Rows,
    /// A login.
    Login,
}

impl Expect {
    /// Every answer that may be expected.
    pub const ALL: [Self; 9] = [
        Self::Nothing,
        Self::Outcome,
        Self::Text,
        Self::Results,
        Self::ResultsOrCursor,
        Self::Prepared,
        Self::Columns,
        Self::Rows,
        Self::Login,
    ];
}

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It goes on with the message of the packet before it.
    Continued,
    /// An OK packet, or the OK packet that ends rows.
    Ok(Status),
    /// An EOF packet.
    Eof(Status),
    /// An ERR packet, which ends the answer.
    Error {
        /// The error's number.
        code: u16,
    },
    /// A progress report (MariaDB).
    Progress,
    /// The count of a result's columns.
    Header {
        /// How many there are.
        columns: u16,
    },
    /// A definition of a column or parameter.
    Column,
    /// A row.
    Row,
    /// The server asks for a file of the client.
    File,
    /// The head of a prepared statement's answer.
    Prepared(Prepared),
    /// A text without a header.
    Text,
    /// A login goes on with another plug-in.
    Switch,
    /// A login goes on with the same plug-in.
    More,
}

/// Whose packet comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Turn {
    /// The server's.
    Server,
    /// The client's, within the answer: a file, or a step of a login.
    Client,
    /// The client's, with another command: the answer has ended.
    Over,
}

/// What comes behind definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Rows {
        cursor: bool,
    },
    /// Definitions of a prepared statement's columns, so many.
    Columns(u16),
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Over,
    Outcome,
    Text,
    First {
        cursor: bool,
    },
    Columns {
        left: u16,
        behind: Behind,
    },
    ColumnsEnd {
        behind: Behind,
    },
    Rows {
        cursor: bool,
    },
    Prepared,
    Fields,
    Login,
    /// The client sends a file, up to an empty packet.
    File {
        cursor: bool,
    },
    /// The client sends a step of a login.
    Step,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Over => "pause between commands",
            Self::Outcome | Self::Text => "answer",
            Self::First { .. } => "beginning of a result",
            Self::Columns { .. } | Self::ColumnsEnd { .. } | Self::Fields => "definitions of columns",
            Self::Rows { .. } => "rows of a result",
            Self::Prepared => "answer to a prepare",
            Self::Login => "login",
            Self::File { .. } => "client's file",
            Self::Step => "client's step of a login",
        }
    }
}

/// Follows one answer.
#[derive(Debug, Clone)]
pub struct Follower {
    capabilities: Capabilities,
    state: State,
    due: Sequence,
    /// The message of the server's last packet goes on.
    continued: bool,
    /// The message of the client's last packet goes on.
    client_continued: bool,
}

impl Follower {
    /// Begins behind a command's last packet; `due` is the number of the answer's first packet.
    ///
    /// The capabilities must have none of [`Capabilities::NOT_FOLLOWED`].
    #[must_use]
    pub fn new(expect: Expect, capabilities: Capabilities, due: Sequence) -> Self {
        let state = match expect {
            Expect::Nothing => State::Over,
            Expect::Outcome => State::Outcome,
            Expect::Text => State::Text,
            Expect::Results => State::First { cursor: false },
            Expect::ResultsOrCursor => State::First { cursor: true },
            Expect::Prepared => State::Prepared,
            Expect::Columns => State::Fields,
            Expect::Rows => State::Rows { cursor: false },
            Expect::Login => State::Login,
        };
        Self { capabilities, state, due, continued: false, client_continued: false }
    }

    /// Whose packet comes next.
    #[must_use]
    pub fn turn(&self) -> Turn {
        match self.state {
            State::File { .. } | State::Step if !self.continued => Turn::Client,
            State::Over if !self.continued => Turn::Over,
            _ => Turn::Server,
        }
    }

    /// The number of the packet that comes next, on either side.
    #[must_use]
    pub fn due(&self) -> Sequence {
        self.due
    }

    /// Takes the server's next packet; `head` is the first [`PEEK`] bytes of its payload, or all of a shorter
    /// one.
    ///
    /// # Errors
    /// A packet that can't come here. The follower must not be asked again after that.
    pub fn server(&mut self, packet: Packet, head: &[u8]) -> Result<Part, ProtocolError> {
        self.follow(packet, head).map_err(ProtocolError::Server)
    }

    /// Takes the client's next packet within an answer.
    ///
    /// # Errors
    /// If it isn't the client's turn, or the packet is out of order.
    pub fn client(&mut self, packet: Packet) -> Result<(), ProtocolError> {
        let within = self.client_continued;
        let next = match self.state {
            state if self.continued => {
                let fault = Fault::Unexpected { first: packet.sequence.0, state: state.name() };
                return Err(ProtocolError::Client(fault));
            }
            // An empty packet that ends a message of many packets is none that ends the file.
            State::File { cursor } if packet.is_empty() && !within => State::First { cursor },
            State::Step if !packet.continues() => State::Login,
            state @ (State::File { .. } | State::Step) => state,
            state => {
                let fault = Fault::Unexpected { first: packet.sequence.0, state: state.name() };
                return Err(ProtocolError::Client(fault));
            }
        };
        self.due = self.due.check(packet).map_err(ProtocolError::Client)?;
        self.state = next;
        self.client_continued = packet.continues();
        Ok(())
    }

    fn follow(&mut self, packet: Packet, head: &[u8]) -> Result<Part, Fault> {
        self.due = self.due.check(packet)?;
        if std::mem::replace(&mut self.continued, packet.continues()) {
            return Ok(Part::Continued);
        }
        let Some(&first) = head.first().filter(|_| !packet.is_empty()) else {
            // A text may well be empty.
            if self.state == State::Text {
                self.state = State::Over;
                return Ok(Part::Text);
            }
            return Err(Fault::Empty { state: self.state.name() });
        };
        if first == ERROR && !matches!(self.state, State::Over | State::File { .. } | State::Step) {
            return self.error(head);
        }
        let unexpected = Fault::Unexpected { first, state: self.state.name() };
        match (self.state, first) {
            (State::Text, _) => {
                self.state = State::Over;
                Ok(Part::Text)
            }
            (State::Outcome | State::Login, OK) => {
                self.state = State::Over;
                Ok(Part::Ok(ok_status(head)?))
            }
            (State::Outcome | State::First { .. } | State::Fields, EOF)
                if answer::ends_rows(first, packet.payload_len, self.capabilities) =>
            {
                self.end(head, false)
            }
            (State::First { cursor }, OK) => {
                let status = ok_status(head)?;
                self.go_on(status, cursor);
                Ok(Part::Ok(status))
            }
            (State::First { cursor }, FILE) => {
                self.state = State::File { cursor };
                Ok(Part::File)
            }
            (State::First { cursor }, _) => self.header(head, cursor),
            (State::Fields, _) => Ok(Part::Column),
            (State::Columns { left, behind }, _) => {
                self.definitions(left - 1, behind);
                Ok(Part::Column)
            }
            (State::ColumnsEnd { behind }, EOF) => {
                let status = answer::parse_eof(head).map_err(|error| error.fault().clone())?.status;
                self.state = match behind {
                    // The cursor's rows come when they are fetched.
                    Behind::Rows { cursor: true } if status.contains(Status::CURSOR_EXISTS) => {
                        self.go_on(status, true);
                        return Ok(Part::Eof(status));
                    }
                    behind => self.behind(behind),
                };
                Ok(Part::Eof(status))
            }
            (State::Rows { cursor }, _) => {
                if answer::ends_rows(first, packet.payload_len, self.capabilities) {
                    return self.end(head, cursor);
                }
                Ok(Part::Row)
            }
            (State::Prepared, OK) => self.prepared(head),
            (State::Login, authentication::SWITCH) => {
                self.state = State::Step;
                Ok(Part::Switch)
            }
            (State::Login, authentication::MORE) => {
                if head != FAST_PATH {
                    self.state = State::Step;
                }
                Ok(Part::More)
            }
            _ => Err(unexpected),
        }
    }

    fn error(&mut self, head: &[u8]) -> Result<Part, Fault> {
        let code = answer::parse_error(head).map_err(|error| error.fault().clone())?.code;
        if code == answer::PROGRESS && self.capabilities.contains(Capabilities::PROGRESS) {
            return Ok(Part::Progress);
        }
        self.state = State::Over;
        Ok(Part::Error { code })
    }

    /// The packet that ends rows or definitions.
    fn end(&mut self, head: &[u8], cursor: bool) -> Result<Part, Fault> {
        let (part, status) = if self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            let status = ok_status(head)?;
            (Part::Ok(status), status)
        } else {
            let status = answer::parse_eof(head).map_err(|error| error.fault().clone())?.status;
            (Part::Eof(status), status)
        };
        self.go_on(status, cursor);
        Ok(part)
    }

    fn go_on(&mut self, status: Status, cursor: bool) {
        let more = status.contains(Status::MORE_RESULTS);
        self.state = if more { State::First { cursor } } else { State::Over };
    }

    fn header(&mut self, head: &[u8], cursor: bool) -> Result<Part, Fault> {
        let mut reader = Reader::new("a result's first packet", head);
        let columns = reader.integer("column count")?;
        let columns = u16::try_from(columns).map_err(|_| reader.invalid("column count"))?;
        let behind = Behind::Rows { cursor };
        let cached = self.capabilities.contains(Capabilities::CACHE_METADATA);
        // Here a further byte says whether definitions follow.
        let defined = !cached || reader.u8("flag of metadata")? != 0;
        self.definitions(if defined { columns } else { 0 }, behind);
        Ok(Part::Header { columns })
    }

    /// How many definitions are still to come.
    fn definitions(&mut self, left: u16, behind: Behind) {
        self.state = if left > 0 {
            State::Columns { left, behind }
        } else if self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.behind(behind)
        } else {
            State::ColumnsEnd { behind }
        };
    }

    fn behind(&self, behind: Behind) -> State {
        match behind {
            Behind::Rows { cursor } => State::Rows { cursor },
            Behind::Columns(0) | Behind::Nothing => State::Over,
            Behind::Columns(left) => State::Columns { left, behind: Behind::Nothing },
        }
    }

    fn prepared(&mut self, head: &[u8]) -> Result<Part, Fault> {
        let prepared = answer::parse_prepared(head).map_err(|error| error.fault().clone())?;
        // Nothing stands for an empty block of definitions, not even an EOF packet.
        self.state = match (prepared.parameters, prepared.columns) {
            (0, columns) => self.behind(Behind::Columns(columns)),
            (left, columns) => State::Columns { left, behind: Behind::Columns(columns) },
        };
        Ok(Part::Prepared(prepared))
    }
}

/// The status of an OK packet, which stands within its first 23 bytes.
fn ok_status(head: &[u8]) -> Result<Status, Fault> {
    let mut reader = Reader::new("an OK packet", head);
    reader.u8("header")?;
    reader.integer("affected rows")?;
    reader.integer("last insert id")?;
    reader.u16("status").map(Status)
}
