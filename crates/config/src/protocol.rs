//! What a protected service speaks: most keys depend on that.

/// What a protected service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL, protocol 3.
    Postgres,
    /// MySQL and MariaDB, protocol 4.1.
    Mysql,
    /// HTTP, versions 1 and 2.
    Http,
}
