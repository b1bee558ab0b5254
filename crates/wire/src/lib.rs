//! Wire protocols as bytes in, messages out: PostgreSQL 3.0 and the SQL that is read for request types.
