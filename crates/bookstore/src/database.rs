//! A connection to the shop's database: PostgreSQL, or MariaDB where the address begins with `mysql://`.
//!
//! All SQL of the shop is written once, for PostgreSQL. For MariaDB casts are left out, since [`Column`]
//! reads what comes without them; places become `?`; and [`PHRASES`] has what else differs.

use deadpool_postgres::Object;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Value};
use tokio::sync::Mutex;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, NoTls};

/// How an address of MariaDB begins.
const MARIADB: &str = "mysql://";
/// Statements that a connection to MariaDB keeps prepared: more than the shop has.
const STATEMENTS: usize = 256;
/// The longest packet that a connection to MariaDB sends: what the servers' default allows.
const PACKET: usize = 16 << 20;
/// After how many seconds MariaDB closes an idle connection, by default.
const IDLE: usize = 28_800;

/// What differs between PostgreSQL and MariaDB beside casts and places.
const PHRASES: [(&str, &str); 9] = [
    ("interval '2 hours'", "interval 2 hour"),
    ("$6 * interval '1 day'", "interval $6 day"),
    ("AS line (scl_sc_id", "(scl_sc_id"),
    ("ON CONFLICT (scl_sc_id, scl_i_id) DO", "ON DUPLICATE KEY"),
    ("UPDATE SET scl_qty = LEAST(line.", "UPDATE scl_qty = LEAST("),
    // Both divide whole numbers here; MariaDB's `/` doesn't.
    ("/ 21)", "DIV 21)"),
    // Only so does MariaDB read all lines: it would find them by their books.
    (
        "order_line WHERE i_id = ol_i_id AND i_a_id = a_id AND ol_o_id + 0",
        "order_line IGNORE INDEX (order_line_i_id) \
      WHERE i_id = ol_i_id AND i_a_id = a_id AND ol_o_id + 0",
    ),
    ("SELECT format('", "SELECT sformat('"),
    ("%s", "{}"),
];

/// What a database, or its driver, said.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// PostgreSQL.
    #[error("{}", described(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// MariaDB.
    #[error(transparent)]
    Mariadb(#[from] mysql_async::Error),
    /// An address of MariaDB that can't be read.
    #[error(transparent)]
    Address(#[from] mysql_async::UrlError),
    /// A column holds something else than the shop expects.
    #[error("column {0} of a row isn't of the expected type")]
    Column(usize),
}

/// An error of PostgreSQL with its cause, which the driver's own text leaves out.
fn described(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Whether an address is one of MariaDB.
pub(crate) fn is_mariadb(url: &str) -> bool {
    url.starts_with(MARIADB)
}

/// How to connect to MariaDB at an address.
///
/// # Errors
///
/// If the address can't be read.
pub(crate) fn mariadb_options(url: &str) -> Result<OptsBuilder, DatabaseError> {
    // What is asked for otherwise at each login is said here. An UPDATE counts the rows that it found, as
    // PostgreSQL's does.
    let options = OptsBuilder::from_opts(Opts::from_url(url)?);
    let options = options.prefer_socket(false).max_allowed_packet(Some(PACKET)).wait_timeout(Some(IDLE));
    Ok(options.client_found_rows(true).stmt_cache_size(STATEMENTS))
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameter<'a> {
    /// A whole number.
    Int(&'a i32),
    /// An amount in cents.
    Cents(&'a i64),
    /// A text.
    Text(&'a &'a str),
}

impl<'a> Parameter<'a> {
    /// For PostgreSQL, with its type, so that nobody has to ask the server for it.
    fn postgres(self) -> (&'a (dyn ToSql + Sync), Type) {
        match self {
            Self::Int(value) => (value, Type::INT4),
            Self::Cents(value) => (value, Type::INT8),
            Self::Text(value) => (value, Type::TEXT),
        }
    }

    fn mariadb(self) -> Value {
        match self {
            Self::Int(value) => Value::Int(i64::from(*value)),
            Self::Cents(value) => Value::Int(*value),
            Self::Text(value) => Value::Bytes(value.as_bytes().to_vec()),
        }
    }
}

/// A connection to the database.
pub(crate) enum Connection {
    /// Of a pool to PostgreSQL, with its prepared statements if it has any.
    Pooled(Object),
    /// To PostgreSQL, made for one use.
    Own(Client),
    /// To MariaDB: back in its pool when this is dropped, or closed if it has none.
    Mariadb(Mutex<Conn>),
}

/// A row of an answer.
pub(crate) enum Row {
    /// Of PostgreSQL.
    Postgres(tokio_postgres::Row),
    /// Of MariaDB.
    Mariadb(mysql_async::Row),
}

/// A type that columns are read as.
pub(crate) trait Column: for<'a> FromSql<'a> {
    /// A value of MariaDB; none if it is of another type.
    fn of(value: &Value) -> Option<Self>;
}

impl Column for i64 {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(*number),
            Value::UInt(number) => Self::try_from(*number).ok(),
            // A decimal number, of which the shop asks for the whole cents.
            Value::Bytes(text) => std::str::from_utf8(text).ok()?.split('.').next()?.parse().ok(),
            _ => None,
        }
    }
}

impl Column for i32 {
    fn of(value: &Value) -> Option<Self> {
        Self::try_from(i64::of(value)?).ok()
    }
}

impl Column for String {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bytes(text) => Self::from_utf8(text.clone()).ok(),
            Value::Date(year, month, day, ..) => Some(format!("{year:04}-{month:02}-{day:02}")),
            _ => None,
        }
    }
}

impl Row {
    /// A column.
    ///
    /// # Errors
    ///
    /// If it is of another type, or there is none of this number.
    pub(crate) fn try_get<T: Column>(&self, index: usize) -> Result<T, DatabaseError> {
        match self {
            Self::Postgres(row) => Ok(row.try_get(index)?),
            Self::Mariadb(row) => row.as_ref(index).and_then(T::of).ok_or(DatabaseError::Column(index)),
        }
    }
}

impl Connection {
    /// Connects to a database by its address.
    ///
    /// # Errors
    ///
    /// If the database lets nobody in, or the address can't be read.
    pub(crate) async fn open(url: &str) -> Result<Self, DatabaseError> {
        if is_mariadb(url) {
            return Ok(Self::Mariadb(Mutex::new(Conn::new(mariadb_options(url)?).await?)));
        }
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self::Own(client))
    }

    /// Whether it leads to MariaDB.
    pub(crate) const fn is_mariadb(&self) -> bool {
        matches!(self, Self::Mariadb(_))
    }

    /// Runs statements of the database's own dialect that have no places and whose rows nobody needs.
    ///
    /// # Errors
    ///
    /// What the database says.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), DatabaseError> {
        match self {
            Self::Pooled(object) => Ok(object.batch_execute(sql).await?),
            Self::Own(client) => Ok(client.batch_execute(sql).await?),
            Self::Mariadb(conn) => Ok(conn.lock().await.query_drop(sql).await?),
        }
    }

    /// The rows of a statement. A connection of a pool to PostgreSQL keeps it prepared if it is to; to
    /// prepare what is used once would cost a round trip more. To MariaDB all are prepared and kept: its
    /// protocol has places in no other way.
    ///
    /// # Errors
    ///
    /// What the database says.
    pub(crate) async fn rows(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        prepares: bool,
    ) -> Result<Vec<Row>, DatabaseError> {
        let (values, types): (Vec<_>, Vec<Type>) = parameters.iter().map(|value| value.postgres()).unzip();
        let rows = match self {
            Self::Mariadb(conn) => {
                let (sql, values) = translated(sql, parameters);
                let rows: Vec<mysql_async::Row> = conn.lock().await.exec(sql, values).await?;
                return Ok(rows.into_iter().map(Row::Mariadb).collect());
            }
            Self::Pooled(object) if prepares => {
                object.query(&object.prepare_typed_cached(sql, &types).await?, &values).await?
            }
            Self::Pooled(object) => object.query_typed(sql, &typed(values, types)).await?,
            Self::Own(client) => client.query_typed(sql, &typed(values, types)).await?,
        };
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    /// Runs a statement without rows, and returns how many it changed.
    ///
    /// # Errors
    ///
    /// What the database says.
    pub(crate) async fn execute(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        prepares: bool,
    ) -> Result<u64, DatabaseError> {
        let (values, types): (Vec<_>, Vec<Type>) = parameters.iter().map(|value| value.postgres()).unzip();
        Ok(match self {
            Self::Mariadb(conn) => {
                let (sql, values) = translated(sql, parameters);
                let mut conn = conn.lock().await;
                conn.exec_drop(sql, values).await?;
                conn.affected_rows()
            }
            Self::Pooled(object) if prepares => {
                object.execute(&object.prepare_typed_cached(sql, &types).await?, &values).await?
            }
            Self::Pooled(object) => object.execute_typed(sql, &typed(values, types)).await?,
            Self::Own(client) => client.execute_typed(sql, &typed(values, types)).await?,
        })
    }

    /// Closes the session, so that nobody inherits what it has begun.
    pub(crate) fn close(self) {
        match self {
            Self::Pooled(object) => drop(Object::take(object)),
            Self::Own(client) => drop(client),
            Self::Mariadb(conn) => {
                let ended = conn.into_inner().disconnect();
                tokio::spawn(async { ended.await.is_ok() });
            }
        }
    }
}

type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

fn typed<'a>(values: Vec<&'a (dyn ToSql + Sync)>, types: Vec<Type>) -> Vec<Typed<'a>> {
    values.into_iter().zip(types).collect()
}

/// A statement in MariaDB's dialect, and its values in the order of their places.
fn translated(sql: &str, parameters: &[Parameter<'_>]) -> (String, mysql_async::Params) {
    let sql = PHRASES.iter().fold(sql.to_owned(), |sql, (from, to)| sql.replace(from, to));
    let (mut text, mut values) = (String::with_capacity(sql.len()), Vec::new());
    let mut rest = sql.as_str();
    while let Some(at) = rest.find(['$', ':', '\'']) {
        text.push_str(&rest[..at]);
        let special = &rest[at..];
        let word = |from: usize, is: fn(char) -> bool| {
            special[from..].find(|c| !is(c)).map_or(special.len(), |length| from + length)
        };
        let end = if let Some(number) = special.strip_prefix('$') {
            let end = word(1, |c| c.is_ascii_digit());
            let parameter =
                number[..end - 1].parse::<usize>().ok().and_then(|n| parameters.get(n.checked_sub(1)?));
            values.extend(parameter.map(|parameter| parameter.mariadb()));
            text.push('?');
            end
        } else if special.starts_with("::") {
            word(2, |c| c.is_ascii_alphanumeric())
        } else if text.ends_with("nextval(") && special.starts_with('\'') {
            // A sequence is named without quotes.
            let end = word(1, |c| c != '\'');
            text.push_str(&special[1..end]);
            (end + 1).min(special.len())
        } else {
            text.push_str(&special[..1]);
            1
        };
        rest = &special[end..];
    }
    text.push_str(rest);
    (text, if values.is_empty() { mysql_async::Params::Empty } else { values.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_casts_and_phrases_become_those_of_mariadb() {
        let (sql, values) = translated(
            "SELECT (c * 100)::bigint, d::date::text, 'a:b' FROM t WHERE e = $2 AND f > $1 - $2 + $6 * interval '1 day'",
            &[Parameter::Int(&1), Parameter::Text(&"two")],
        );
        assert_eq!(sql, "SELECT (c * 100), d, 'a:b' FROM t WHERE e = ? AND f > ? - ? + interval ? day");
        let two = || Value::Bytes(b"two".to_vec());
        assert_eq!(values, mysql_async::Params::Positional(vec![two(), Value::Int(1), two()]));
        let (sql, values) = translated("VALUES (nextval('cart_ids')::int) /*route='%2Fbest'*/", &[]);
        assert_eq!(sql, "VALUES (nextval(cart_ids)) /*route='%2Fbest'*/");
        assert_eq!(values, mysql_async::Params::Empty);
    }

    #[test]
    fn columns_of_mariadb_are_read_as_those_of_postgresql() {
        let text = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        assert_eq!(i64::of(&text("1999.0000")), Some(1999));
        assert_eq!((i32::of(&Value::Int(7)), i32::of(&Value::Int(1 << 40))), (Some(7), None));
        assert_eq!(String::of(&Value::Date(2026, 1, 9, 7, 0, 0, 0)).as_deref(), Some("2026-01-09"));
        assert_eq!((i64::of(&text("a")), String::of(&Value::NULL)), (None, None));
    }
}
