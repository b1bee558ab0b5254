//! One client's session.

use std::sync::Arc;

use super::{LoggedIn, Shared};

/// Serves a logged-in client until it leaves.
pub(crate) async fn serve(shared: Arc<Shared>, logged_in: LoggedIn) {
    drop((shared, logged_in));
}
