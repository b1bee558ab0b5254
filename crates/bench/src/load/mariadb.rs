//! A connection to MariaDB, held by a task of its own: the driver breaks a connection whose question is given
//! up.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Row, Value};
use tokio::sync::{mpsc, oneshot};

use super::said::DatabaseError;
use crate::Error;

/// Questions that may wait for their turn: one that was given up, and the one behind it.
const QUESTIONS: usize = 2;
/// The longest packet that is sent: what the servers' default allows.
const PACKET: usize = 16 << 20;
/// After how many seconds MariaDB closes an idle connection, by default.
const IDLE: usize = 28_800;

/// How to connect to MariaDB at an address.
///
/// # Errors
/// If the address can't be read.
pub(super) fn options(url: &str) -> Result<Opts, Error> {
    let read = Opts::from_url(url)
        .map_err(|error| Error::Experiment(format!("the address of MariaDB can't be read: {error}")))?;
    // What the driver asks for otherwise at each login is said here.
    let options = OptsBuilder::from_opts(read).prefer_socket(false);
    Ok(options.max_allowed_packet(Some(PACKET)).wait_timeout(Some(IDLE)).into())
}

/// A connection to MariaDB.
#[derive(Debug)]
pub struct Conversation {
    id: u32,
    questions: mpsc::Sender<Question>,
}

/// A text, and where its answer goes.
#[derive(Debug)]
enum Question {
    /// Whether it goes through.
    Run(String, oneshot::Sender<Result<(), mysql_async::Error>>),
    /// The first column of its rows.
    Column(String, oneshot::Sender<Result<Vec<String>, mysql_async::Error>>),
}

impl Conversation {
    /// Opens a connection.
    ///
    /// # Errors
    /// If the server lets nobody in.
    pub(super) async fn open(options: Opts) -> Result<Self, mysql_async::Error> {
        let conn = Conn::new(options).await?;
        let (id, (questions, asked)) = (conn.id(), mpsc::channel(QUESTIONS));
        tokio::spawn(drive(conn, asked));
        Ok(Self { id, questions })
    }

    /// What KILL calls it.
    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.questions.is_closed()
    }

    /// Runs a text.
    pub(super) async fn run(&self, sql: &str) -> Result<(), DatabaseError> {
        self.ask(|told| Question::Run(sql.to_owned(), told)).await
    }

    /// The first column of a text's rows.
    pub(super) async fn column(&self, sql: &str) -> Result<Vec<String>, DatabaseError> {
        self.ask(|told| Question::Column(sql.to_owned(), told)).await
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, mysql_async::Error>>) -> Question,
    ) -> Result<T, DatabaseError> {
        let (told, tells) = oneshot::channel();
        self.questions.send(question(told)).await.map_err(|_| DatabaseError::Ended)?;
        Ok(tells.await.map_err(|_| DatabaseError::Ended)??)
    }
}

/// Answers questions one after another, until nobody can ask any more or the connection is lost.
async fn drive(mut conn: Conn, mut asked: mpsc::Receiver<Question>) {
    while let Some(question) = asked.recv().await {
        // Nobody may wait for the answer any more.
        let is_usable = match question {
            Question::Run(sql, told) => {
                let answer = conn.query_drop(sql).await;
                let is_usable = is_usable(&answer);
                let _ = told.send(answer);
                is_usable
            }
            Question::Column(sql, told) => {
                let answer = column(&mut conn, sql).await;
                let is_usable = is_usable(&answer);
                let _ = told.send(answer);
                is_usable
            }
        };
        if !is_usable {
            return;
        }
    }
    let _ = conn.disconnect().await;
}

async fn column(conn: &mut Conn, sql: String) -> Result<Vec<String>, mysql_async::Error> {
    let rows: Vec<Row> = conn.query(sql).await?;
    // A text answer has bytes in every column that isn't NULL.
    let first = |row: &Row| match row.as_ref(0) {
        Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    Ok(rows.iter().map(first).collect())
}

/// Whether a connection is whole after an answer: the server's own errors leave it so.
const fn is_usable<T>(answer: &Result<T, mysql_async::Error>) -> bool {
    matches!(answer, Ok(_) | Err(mysql_async::Error::Server(_)))
}
