//! Results of a statement that later ones can ask for: they are on the connection only, and don't follow a
//! session to another.

/// A set of such results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Results(u8);

impl Results {
    /// `FOUND_ROWS()`.
    pub(super) const ROWS: Self = Self(1);
    /// `ROW_COUNT()`.
    pub(super) const COUNT: Self = Self(2);
    /// `SHOW WARNINGS`, and the number of warnings.
    pub(super) const WARNINGS: Self = Self(4);
    /// `LASTVAL()`.
    pub(super) const SEQUENCE: Self = Self(8);
    /// `@@last_gtid`.
    pub(super) const GTID: Self = Self(16);
    pub(super) const ALL: Self = Self(31);
    /// What a query of the gate's own replaces, which reads no table.
    pub(super) const OF_QUERIES: Self = Self(Self::ROWS.0 | Self::COUNT.0);

    pub(super) const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(super) const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Those of both sets.
    pub(super) const fn common(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Whether both sets have one in common.
    pub(super) const fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}
