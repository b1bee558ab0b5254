//! What the gates for SQL share, whatever protocol they speak: the classes and request types of statements,
//! logins and the users' secrets, and what is counted of databases and connections.

pub(crate) mod asking;
pub(crate) mod class;
mod hand;
pub(crate) mod logins;
pub(crate) mod request_type;
mod session_changes;
pub(crate) mod stats;
pub(crate) mod users_file;

pub(crate) use hand::{Hand, ServerInHand};
pub(crate) use session_changes::SessionChanges;
pub use session_changes::SessionChangesView;
