//! At most so many wait. A gate that is free dispatches before it looks here, so that 0 means "never wait".

/// The most immediate requests that wait for a connection. They aren't counted in `queue_max`: a full queue
/// must not refuse the `COMMIT` that it waits for. Beyond this a shell has lost count.
pub(crate) const IMMEDIATE_MAX: usize = 65_536;

/// Whether one more may not wait.
pub(crate) fn is_full(waiting: usize, most: usize) -> bool {
    waiting >= most
}
