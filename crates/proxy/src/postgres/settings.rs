//! What a session has set on a server connection.

/// The session state that is left on a server connection.
#[derive(Debug, Default)]
pub(crate) struct ServerState {}
