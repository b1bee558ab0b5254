//! What reads the tables of a file, key by key, for other files than a configuration that have gates in them.

pub use crate::checked::{number, read_simulated, single_table};
pub use crate::complaint::Complaint;
pub use crate::raw::{
    Section, Yardsticks, amount, amount_or_steps, at_most_a_day, boolean, bound, choice, counts, curve,
    hint_for_unknown, integer, list, long_time, some_text, some_time, steps, text, texts, time_or_none,
    times, unknown_key, weights,
};
pub use crate::reference::section as describe;
