//! Log lines for an observer's changes.

use admission::Lane;

use super::Change;
use crate::news::Lanes;

/// By how much more is completed, in words that end a sentence: "9 % more". Beyond a doubling the figure says
/// most about how little was completed before.
fn gained(gain: f64) -> String {
    match gain {
        _ if gain >= 4.0 => "many times as much".to_owned(),
        _ if gain >= 1.0 => "more than twice as much".to_owned(),
        _ => format!("{:.0} % more", gain * 100.0),
    }
}

/// Writes changes to the log: at info level what starts or ceases to be limited, at debug level the rest.
/// `lanes` knows which changes of a type's lane were told.
pub(crate) fn log_changes(gate: &str, lanes: &Lanes, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Lane { label, lane, work } => lanes.changed(gate, label, *lane, *work),
            Change::Capacity { from, to, gain: Some(gain) } => {
                let gain = gained(*gain);
                tracing::info!(gate, from, to, gain, "another capacity: more is completed");
            }
            Change::Capacity { from, to, gain: None } => {
                tracing::debug!(gate, from, to, "another capacity");
            }
            Change::GroupFormed { group, from, to, gain } => {
                let gain = gained(*gain);
                tracing::info!(gate, group, from, to, gain, "types that contend have a bound of their own");
            }
            Change::GroupJoined { group, label } => {
                tracing::info!(gate, group, r#type = %label, "a type that contends");
            }
            Change::GroupMoved { group, from, to, gain } => {
                let gain = gain.map(gained);
                tracing::debug!(gate, group, from, to, gain, "another bound for types that contend");
            }
            Change::GroupDissolved { group, most } => {
                tracing::info!(gate, group, most, "types don't contend any more: their bound is gone");
            }
            Change::Stalled { lasted, late } => {
                let lasted_s = lasted.as_secs_f64();
                tracing::warn!(
                    gate,
                    lasted_s,
                    late,
                    "the service answered nothing for long; requests that waited come after newcomers"
                );
            }
            Change::TargetReach(label, Some(places)) => {
                tracing::warn!(
                    gate,
                    r#type = label.as_deref(),
                    places,
                    "the target is out of reach: requests take longer although fewer are present than the service \
                     works on at once. State a longer target, or make the service faster"
                );
            }
            Change::TargetReach(label, None) => {
                tracing::info!(gate, r#type = label.as_deref(), "the target is within reach again");
            }
            Change::Goal(text) => tracing::info!(gate, "{text}"),
            Change::LongLimit { from, to, parallelism } => {
                tracing::info!(gate, from, to, parallelism, "another limit of the long lane");
            }
        }
    }
}

/// The name of a lane in tables, metrics and logs.
pub const fn lane_name(lane: Lane) -> &'static str {
    match lane {
        Lane::Unknown => "unknown",
        Lane::Short => "short",
        Lane::Long => "long",
        Lane::Variable => "variable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_that_nobody_would_believe_is_told_in_words() {
        let told = [0.094, 0.5, 1.2, 28.301].map(gained);
        assert_eq!(told, ["9 % more", "50 % more", "more than twice as much", "many times as much"]);
    }
}
