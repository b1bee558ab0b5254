//! Tests of logins.
