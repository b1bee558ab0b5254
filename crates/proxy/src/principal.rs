//! The principal of a session for a database: the user that logged in, and what its application calls itself.

use std::sync::Arc;

/// The longest part of a name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A user and an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The user that logged in.
    pub(crate) user: Box<[u8]>,
    /// What the application calls itself; empty if it doesn't.
    pub(crate) application: Box<[u8]>,
}

/// The principal of a session, made anew only when a name changes.
#[derive(Debug, Default)]
pub(crate) struct Current(Option<Arc<Principal>>);

impl Current {
    /// The principal of a session with these names of a user and an application.
    pub(crate) fn named(&mut self, user: &[u8], application: &[u8]) -> &Arc<Principal> {
        let (user, application) = (cut(user), cut(application));
        let is_known = |known: &Arc<Principal>| *known.user == *user && *known.application == *application;
        let known = self.0.take().filter(is_known);
        self.0.insert(
            known.unwrap_or_else(|| {
                Arc::new(Principal { user: user.into(), application: application.into() })
            }),
        )
    }
}

fn cut(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_BYTES_MAX)]
}
