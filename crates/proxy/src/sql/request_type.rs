//! The request types of the gates for SQL: their keys, and their names in tables and metrics.
//!
//! A type is the database, whether the transaction is explicit, and the shape of the text.

use std::sync::Arc;

use admission::RequestType;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::observe::TypeName;

/// What the name of a type has before its label if its transactions are explicit.
const EXPLICIT: &str = "BEGIN; ";
/// The label of a text without a statement.
pub(crate) const EMPTY: &str = "empty";
/// The label of what can't be lexed.
pub(crate) const UNPARSED: &str = "unparsed";

/// The hash of a label that is the whole shape.
pub(crate) fn label_hash(label: &str) -> u64 {
    xxh3_64(label.as_bytes())
}

/// The request type of a text in a database.
pub(crate) fn request_type(database: &str, type_hash: u64, explicit: bool) -> RequestType {
    RequestType(xxh3_64_with_seed(database.as_bytes(), type_hash ^ u64::from(explicit)))
}

/// The name of a type that has this hash and label: what operators read in tables and metrics.
pub(crate) fn type_name(database: &str, (hash, label): (u64, &str), explicit: bool) -> TypeName {
    let transaction = if explicit { EXPLICIT } else { "" };
    let name: Arc<str> = format!("{database}: {transaction}{label}").into();
    TypeName::new(request_type(database, hash, explicit), name)
}

/// The key of the type of this name. A name that was cut doesn't tell the type, nor does that of a message
/// whose number of statements is a part of the type.
pub fn request_type_named(name: &str) -> Option<RequestType> {
    let (database, label) = name.split_once(": ")?;
    let (label, explicit) = label.strip_prefix(EXPLICIT).map_or((label, false), |label| (label, true));
    Some(request_type(database, label_hash(label), explicit))
}
