//! Switches for experiments: a gate without one of its mechanisms, to see what that mechanism is worth.
//! They are for mechanisms that no setting of the policy turns off.

/// A mechanism of the default policy that an experiment can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// The turn of a long request that shorts have overtaken by more than its allowance (`lanes.rs`).
    Bypass,
    /// The step back of requests that have waited for longer than clients here do (`leavers.rs`).
    Leavers,
    /// The turn of long requests that hold many of an application's connections (`clients.rs`).
    Hoarding,
    /// The turn of newcomers before requests that waited through a stall (`stalls.rs`). The gate still holds
    /// back what a stalled service would be sent.
    NewcomersFirst,
    /// The scouts: all requests of an unknown type wait among the shorts, not behind one of them.
    Scouts,
    /// The charge of a request for the time by which it has outlived its expected work (`ledger.rs`).
    Overruns,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Self; 6] =
        [Self::Bypass, Self::Leavers, Self::Hoarding, Self::NewcomersFirst, Self::Scouts, Self::Overruns];
}

/// A set of mechanisms that a gate goes without. Empty outside of experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without(u8);

impl Without {
    /// The gate has all mechanisms.
    pub const NOTHING: Self = Self(0);

    /// The gate goes without this mechanism, beside those already named.
    #[must_use]
    pub const fn and(self, mechanism: Mechanism) -> Self {
        Self(self.0 | 1 << mechanism as u8)
    }

    /// Whether the gate goes without it.
    pub const fn has(self, mechanism: Mechanism) -> bool {
        self.0 & 1 << mechanism as u8 != 0
    }
}

impl From<Mechanism> for Without {
    fn from(mechanism: Mechanism) -> Self {
        Self::NOTHING.and(mechanism)
    }
}
