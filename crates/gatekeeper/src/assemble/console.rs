//! A console's settings, from the configuration.

use proxy::command::Commands;
use proxy::{ConfigRow, Console};

use super::alone;

/// The console of a gate: who may use it, and what `SHOW CONFIG` shows.
pub(super) fn console(
    gate: &config::Gate,
    (admins, stats): (&[String], &[String]),
    commands: &Commands,
) -> Console {
    let rows = config::rows(&alone(gate)).into_iter().filter(|row| row.gate.is_some());
    let row = |row: config::Row| {
        let field = config::GATE.iter().find(|field| field.key == row.key);
        let bare = |value: &str| value.trim_matches('"').to_owned();
        ConfigRow {
            key: row.key,
            value: bare(&row.value),
            default: match field.map(|field| field.default) {
                Some(config::FieldDefault::Value(value) | config::FieldDefault::Each(value, ..)) => {
                    bare(value)
                }
                Some(config::FieldDefault::Derived(words)) => words.to_owned(),
                Some(config::FieldDefault::Required) | None => String::new(),
            },
            changeable: field.is_some_and(|field| field.reloadable),
        }
    };
    Console {
        admin_users: admins.to_vec(),
        stats_users: stats.to_vec(),
        config: rows.map(row).collect(),
        commands: Some(commands.clone()),
        ..Console::default()
    }
}
