//! What the shell tells the gate about a request, and what names it afterwards.

use core::num::NonZeroU32;

use crate::time::{Duration, Instant};

/// A request type: the set of requests expected to cost alike. The shell computes the key (a stable hash of
/// whatever names the type) and keeps the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestType(pub u64);

/// A service class: the requests that share one weight. It is a hash of the name, so that a change of the
/// policy leaves it the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClassId(pub u64);

impl ClassId {
    /// The class of all that belong to no other.
    pub const DEFAULT: Self = Self(0);
    /// What that one is called.
    pub const DEFAULT_NAME: &str = "default";

    /// The class of this name (FNV-1a).
    pub const fn named(name: &str) -> Self {
        let (bytes, default) = (name.as_bytes(), Self::DEFAULT_NAME.as_bytes());
        let mut is_default = bytes.len() == default.len();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut at = 0;
        while at < bytes.len() {
            is_default = is_default && bytes[at] == default[at];
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        if is_default { Self::DEFAULT } else { Self(hash) }
    }
}

/// A tenant: whose requests share a class fairly with those of other tenants. A hash: tenants of one hash are
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(NonZeroU32);

impl TenantId {
    /// The tenant of this hash of whatever names it. The hash should be a secret one: a tenant that chooses
    /// its name could otherwise choose its neighbors.
    pub const fn new(hash: u64) -> Self {
        match NonZeroU32::new((hash ^ hash >> 32) as u32) {
            Some(folded) => Self(folded),
            None => Self(NonZeroU32::MAX),
        }
    }

    /// Its number.
    pub(crate) const fn as_u32(self) -> u32 {
        self.0.get()
    }
}

/// A pool of upstream connections that can stand in for one another (for SQL: one user, database and
/// start-up state). At most [`PoolId::COUNT`] per gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PoolId(u8);

impl PoolId {
    /// How many pools a gate can have.
    pub const COUNT: usize = 64;

    /// The pool with this index, if it is below [`PoolId::COUNT`].
    pub const fn new(index: u8) -> Option<Self> {
        if (index as usize) < Self::COUNT { Some(Self(index)) } else { None }
    }

    /// Its index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Every pool that there can be.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }
}

/// A set of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PoolSet(pub(crate) u64);

impl PoolSet {
    /// No pool.
    pub const NONE: Self = Self(0);
    /// Every pool that there can be.
    pub const ALL: Self = Self(u64::MAX);

    /// Adds a pool.
    pub const fn insert(&mut self, pool: PoolId) {
        self.0 |= 1 << pool.index();
    }

    /// Whether the pool is in it.
    pub const fn contains(self, pool: PoolId) -> bool {
        self.0 >> pool.index() & 1 == 1
    }
}

/// A client that is connected to the gate, from `Gate::connect` to `Gate::disconnect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(NonZeroU32);

impl ClientId {
    pub(crate) const fn new(place: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place))
    }

    /// Where the gate keeps what it knows of it.
    pub(crate) const fn place(self) -> usize {
        (self.0.get() - 1) as usize
    }
}

/// Whether a request takes a connection from the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It needs one of its pool, and gives it back when it completes.
    Needed,
    /// Its session holds one already (it is pinned), so it takes none.
    Held,
}

/// Whether a request may be made to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The ordinary case.
    Queued,
    /// It is charged but never queued, because making it wait would make others wait (it holds a lock, or
    /// releases one: `COMMIT PREPARED`). It still needs a connection: where none is free it takes the next
    /// one of its pool.
    Immediate,
}

/// One request, as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What kind of work it is.
    pub request_type: RequestType,
    /// Whose turn it waits for; one that the policy doesn't name is [`ClassId::DEFAULT`].
    pub class: ClassId,
    /// Whose connection it comes over, if clients keep theirs from request to request and others wait for
    /// it meanwhile: as those of a database do, and those of visitors over HTTP don't.
    pub client: Option<ClientId>,
    /// Whose it is, if the requests of a class are to be shared fairly between tenants.
    pub tenant: Option<TenantId>,
    /// Which connections can serve it.
    pub pool: PoolId,
    /// Whether it takes one of them.
    pub connection: Connection,
    /// Whether it may wait.
    pub entry: Entry,
    /// When its answer is of no use any more. (Not asked of an immediate request.)
    pub deadline: Option<Instant>,
}

/// Names one request from `arrive` to its end. Never reused within a gate's life; sorted by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// How many arrived before it.
    pub(crate) sequence: u64,
    /// Where the gate keeps its record while it lives.
    pub(crate) slot: u32,
}

impl Ticket {
    /// How many requests arrived at the gate before this one: a shell that keeps records of its own finds
    /// them by it.
    pub const fn sequence(self) -> u64 {
        self.sequence
    }

    /// A name, beside all that a gate gives, for a request that the gate never sees: a shell that lets some
    /// pass by numbers them itself.
    pub const fn aside(number: u64) -> Self {
        Self { sequence: (1 << 63) | number, slot: u32::MAX }
    }

    /// Where the gate keeps the request's record. Another request takes the place after this one's end.
    pub const fn place(self) -> usize {
        self.slot as usize
    }
}

/// A connection kept by a session beyond its request. Give it back with `Gate::unpin`, exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a pin that is lost keeps its connection for ever"]
pub struct Pin {
    pub(crate) pool: PoolId,
    /// The request that was in flight when its session was pinned.
    pub(crate) ticket: Ticket,
}

/// How a request ended upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was served: what it took is what its type costs.
    Success,
    /// It failed: what it took says nothing of what its type costs.
    Failure,
    /// The service gave it up for others that were in flight beside it: a deadlock, or a transaction that
    /// can't be serialized. As a failure it teaches nothing of its type's cost; but fewer in flight would
    /// lose fewer so.
    Conflict,
    /// The client left while it was in flight.
    Canceled,
}

/// The end of a request that was dispatched.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// How it ended.
    pub outcome: Outcome,
    /// How long the service was busy with it, without the client's own pauses.
    pub upstream_time: Duration,
}
