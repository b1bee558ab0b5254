//! Who asks a gate for a database: the user that logged in, and what the application calls itself.

use std::sync::Arc;

/// The longest part of a name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A user and an application that ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asker {
    /// The user that logged in.
    pub(crate) user: Box<[u8]>,
    /// What the application calls itself; empty if it doesn't.
    pub(crate) application: Box<[u8]>,
}

/// The number of an asker; 0 for all that aren't told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AskerId(pub(crate) u16);

/// What a session is to its gate: its number is asked for only when its name changes.
#[derive(Debug, Default)]
pub(crate) struct Face(Option<(Arc<Asker>, AskerId)>);

impl Face {
    /// The number of a session of this user and application now. `ask` asks the gate for it.
    pub(crate) fn number(
        &mut self,
        (user, application): (&[u8], &[u8]),
        ask: impl FnOnce(&Arc<Asker>) -> AskerId,
    ) -> AskerId {
        let (user, application) = (cut(user), cut(application));
        if let Some((known, number)) = &self.0
            && *known.user == *user
            && *known.application == *application
        {
            return *number;
        }
        let asker = Arc::new(Asker { user: user.into(), application: application.into() });
        let number = ask(&asker);
        self.0 = Some((asker, number));
        number
    }
}

fn cut(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_BYTES_MAX)]
}
