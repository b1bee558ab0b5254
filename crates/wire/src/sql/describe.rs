//! Everything about a text in one pass over its tokens.

use super::Dialect;
use super::comment::Tags;
use super::effects::Effects;
use super::fingerprint::{Fingerprint, MAX_TEXT, Shape};
use super::lexer::{Lexer, TokenKind};
use super::observe::Observer;
use super::statement::{Statement, empty};

/// The most statements of a text that are described one by one.
pub const MAX_STATEMENTS: usize = 1_000;

/// Bytes by which a shape may well be longer than its text: spaces that are put in.
const ROOM: usize = 32;

/// What a text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description<'a> {
    /// Its statements: at least one, at most [`MAX_STATEMENTS`].
    pub statements: Vec<Statement<'a>>,
    /// How many more statements there are.
    pub further: usize,
    /// What these further ones do to the session, together.
    pub further_effects: Effects,
    /// The statement that says what the text is about: the first that isn't control, else the first.
    pub subject: usize,
    /// The subject's shape; `None` if the text can't be lexed: its type is `unparsed`.
    pub fingerprint: Option<Fingerprint>,
    /// What the application says about itself.
    pub tags: Tags,
}

impl Description<'_> {
    /// What the whole text does to its session.
    #[must_use]
    pub fn effects(&self) -> Effects {
        let shown = self.statements.iter().fold(Effects::default(), |sum, next| sum.then(next.effects));
        shown.then(self.further_effects)
    }

    /// The statement that says what the text is about.
    #[must_use]
    pub fn subject(&self) -> Option<&Statement<'_>> {
        self.statements.get(self.subject)
    }
}

/// Describes a PostgreSQL text; `standard_strings` is the session's `standard_conforming_strings`.
#[must_use]
pub fn describe(sql: &[u8], standard_strings: bool) -> Description<'_> {
    let mut lexer = Lexer::new(sql, Dialect::Postgres { standard_strings });
    let mut reading = Reading::new(sql);
    loop {
        match lexer.next_token() {
            Ok(Some(token)) => {
                if token.kind == TokenKind::Semicolon && reading.observer.ends_at_semicolon() {
                    reading.end_statement();
                    reading.observer.restart(token.end);
                    continue;
                }
                if token.kind == TokenKind::Comment {
                    reading.tags.read(token.text(sql));
                } else if reading.shapes {
                    reading.shapes = reading.shape.push(sql, token);
                }
                reading.observer.push(sql, token);
            }
            Ok(None) => {
                reading.end_statement();
                return reading.finish();
            }
            Err(_) => {
                let rest = reading.observer.unlexable(sql);
                reading.add(rest);
                let mut description = reading.finish();
                description.fingerprint = None;
                return description;
            }
        }
    }
}

/// A description as it grows.
struct Reading<'a> {
    sql: &'a [u8],
    observer: Observer,
    shape: Shape,
    /// Whether the shape wants more of the present statement.
    shapes: bool,
    /// The shape of the first statement, should all be control.
    first: Option<Fingerprint>,
    /// The subject's place and shape, once it is known.
    subject: Option<(usize, Fingerprint)>,
    statements: Vec<Statement<'a>>,
    further: usize,
    further_effects: Effects,
    tags: Tags,
}

impl<'a> Reading<'a> {
    fn new(sql: &'a [u8]) -> Self {
        Self {
            sql,
            observer: Observer::new(0),
            shape: Shape::new(String::with_capacity(sql.len().min(MAX_TEXT) + ROOM)),
            shapes: true,
            first: None,
            subject: None,
            statements: Vec::with_capacity(1),
            further: 0,
            further_effects: Effects::default(),
            tags: Tags::default(),
        }
    }

    fn end_statement(&mut self) {
        if self.observer.is_empty() {
            return;
        }
        let statement = self.observer.finish(self.sql);
        if self.subject.is_none() {
            let fingerprint = self.shape.finish(statement.text.len());
            if statement.kind.is_control() {
                self.first.get_or_insert(fingerprint);
                self.shapes = true;
            } else {
                self.subject = Some((self.statements.len(), fingerprint));
                self.shapes = false;
            }
        }
        self.add(statement);
    }

    fn add(&mut self, statement: Statement<'a>) {
        if self.statements.len() < MAX_STATEMENTS {
            self.statements.push(statement);
        } else {
            self.further += 1;
            self.further_effects = self.further_effects.then(statement.effects);
        }
    }

    fn finish(mut self) -> Description<'a> {
        if self.statements.is_empty() {
            self.statements.push(empty(self.sql));
            self.first = Some(self.shape.finish(0));
        }
        let (subject, fingerprint) = match self.subject {
            Some((subject, fingerprint)) => (subject.min(MAX_STATEMENTS - 1), Some(fingerprint)),
            None => (0, self.first),
        };
        Description {
            statements: self.statements,
            further: self.further,
            further_effects: self.further_effects,
            subject,
            fingerprint,
            tags: self.tags,
        }
    }
}
