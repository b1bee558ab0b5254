//! A table of a report, as texts.

/// A table as texts.
pub(super) struct Table {
    /// What it shows.
    pub(super) title: String,
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Sentences below it.
    pub(super) notes: Vec<String>,
}
