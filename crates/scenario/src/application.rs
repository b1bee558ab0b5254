//! The application before the gate: what each type locks in it, written with the names of tables.

use std::collections::BTreeSet;

use sim::{Application, TableLock};

use config::reader::{self, Complaint, Section};

/// The tables that a type reads, and those that it writes.
#[derive(Debug, Default)]
pub(super) struct Tables {
    read: Vec<String>,
    written: Vec<String>,
}

impl Tables {
    /// Those of a `[[type]]`.
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let read = section.read_given("reads", reader::texts).unwrap_or_default();
        let written = section.read_given("writes", reader::texts).unwrap_or_default();
        if let Some(both) = read.iter().find(|table| written.contains(table)) {
            let hint = "what is written may be read as well: leave it out of `reads`";
            section.complain("reads", Complaint::new(format!("names {both:?}, as `writes` does")).hint(hint));
        }
        Self { read, written }
    }

    /// The locks of each type, in the order of the tables' names, in which everybody takes them.
    pub(super) fn locks(all: &[Self]) -> Vec<Vec<TableLock>> {
        let names: BTreeSet<&String> = all.iter().flat_map(|of| of.read.iter().chain(&of.written)).collect();
        let each = |tables: &Self| {
            let numbered = names.iter().enumerate();
            let locks = numbered.filter_map(|(table, name)| {
                let written = tables.written.contains(name);
                (written || tables.read.contains(name)).then_some(TableLock { table: table as u32, written })
            });
            locks.collect()
        };
        all.iter().map(each).collect()
    }
}

/// The keys of `[application]`.
pub(super) fn read(section: &mut Section<'_>) -> Application {
    Application {
        connections: section.read("connections", |value| reader::number(value, 1, 1_000_000)),
        timeout: section.read("timeout", reader::time_or_none),
    }
}
