//! What a gate for HTTP knows request types by: the hash of their names.

use std::sync::Arc;

use admission::RequestType;
use xxhash_rust::xxh3::xxh3_64;

use crate::observe::TypeName;

/// The key of the type of this name: whether a route, the application or the template of a path has it.
pub fn request_type(name: &str) -> RequestType {
    RequestType(xxh3_64(name.as_bytes()))
}

/// The type of this name, with a row of its own.
pub(super) fn named(name: &str) -> TypeName {
    TypeName::new(request_type(name), Arc::from(name))
}
