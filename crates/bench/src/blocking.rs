//! What blocks, kept off the runtime's own threads.

use crate::Error;

/// Runs what blocks beside the runtime.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::Experiment(format!("a step of the set-up was aborted: {error}")))?
}
