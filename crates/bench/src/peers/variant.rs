//! What stands before the origin, and with what: gates as they are, peers with the settings among which
//! their best is looked for.

use std::fmt;

use crate::http::Library;

/// How many settings of each peer are tried: the same for all.
pub const TRIES: usize = 8;

/// Keys and their values, as the program in question calls them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting(pub &'static [(&'static str, &'static str)]);

impl Setting {
    /// The value of a key; nothing where there is none.
    pub(super) fn value(&self, key: &str) -> &'static str {
        self.0.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| value)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.0.iter().map(|(key, value)| format!("{key} {value}")).collect();
        formatter.write_str(&each.join(", "))
    }
}

/// What stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nobody.
    Nobody,
    /// A gate with these keys.
    Gate(&'static [(&'static str, &'static str)]),
    /// HAProxy.
    HaProxy,
    /// nginx.
    Nginx,
    /// A library in a proxy.
    Library(Library),
}

/// A variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What it is called.
    pub name: &'static str,
    pub(crate) way: Way,
    settings: &'static [Setting],
}

/// Everybody.
pub const ALL: [Variant; 8] = [
    Variant { name: "no gate", way: Way::Nobody, settings: &[] },
    Variant { name: "gate", way: Way::Gate(&[]), settings: &[] },
    Variant { name: "gate, target = 150 ms", way: Way::Gate(&[("target", "\"150ms\"")]), settings: &[] },
    Variant { name: "HAProxy", way: Way::HaProxy, settings: &HAPROXY },
    Variant { name: "nginx", way: Way::Nginx, settings: &NGINX },
    Variant {
        name: "little-loadshedder",
        way: Way::Library(Library::LittleLoadshedder),
        settings: &LITTLE_LOADSHEDDER,
    },
    Variant { name: "failsafe-go", way: Way::Library(Library::FailsafeGo), settings: &FAILSAFE_GO },
    Variant {
        name: "concurrency-limits",
        way: Way::Library(Library::ConcurrencyLimits),
        settings: &CONCURRENCY_LIMITS,
    },
];

/// The default gate.
pub const GATE: Variant = ALL[1];
/// The gate that was told what mean it shall hold.
pub const TARGETED: Variant = ALL[2];

/// Few at once and many, with a queue that is short and one that absorbs a burst.
const HAPROXY: [Setting; TRIES] = [
    Setting(&[("maxconn", "4"), ("timeout queue", "100ms")]),
    Setting(&[("maxconn", "8"), ("timeout queue", "100ms")]),
    Setting(&[("maxconn", "16"), ("timeout queue", "100ms")]),
    Setting(&[("maxconn", "32"), ("timeout queue", "100ms")]),
    Setting(&[("maxconn", "4"), ("timeout queue", "1s")]),
    Setting(&[("maxconn", "8"), ("timeout queue", "1s")]),
    Setting(&[("maxconn", "16"), ("timeout queue", "1s")]),
    Setting(&[("maxconn", "32"), ("timeout queue", "1s")]),
];

/// It has no queue, so there is one number.
const NGINX: [Setting; TRIES] = [
    Setting(&[("limit_conn", "1")]),
    Setting(&[("limit_conn", "2")]),
    Setting(&[("limit_conn", "4")]),
    Setting(&[("limit_conn", "8")]),
    Setting(&[("limit_conn", "16")]),
    Setting(&[("limit_conn", "32")]),
    Setting(&[("limit_conn", "64")]),
    Setting(&[("limit_conn", "128")]),
];

/// Its target in milliseconds, and how fast its average moves: 0.01 is its example's.
const LITTLE_LOADSHEDDER: [Setting; TRIES] = [
    Setting(&[("target", "50"), ("ewma", "0.01")]),
    Setting(&[("target", "150"), ("ewma", "0.01")]),
    Setting(&[("target", "500"), ("ewma", "0.01")]),
    Setting(&[("target", "1500"), ("ewma", "0.01")]),
    Setting(&[("target", "50"), ("ewma", "0.1")]),
    Setting(&[("target", "150"), ("ewma", "0.1")]),
    Setting(&[("target", "500"), ("ewma", "0.1")]),
    Setting(&[("target", "1500"), ("ewma", "0.1")]),
];

/// First with its defaults; then with its queue, with a median instead of the 90th percentile, with a bound
/// near what the origin needs.
const FAILSAFE_GO: [Setting; TRIES] = [
    Setting(&[("max-limit", "200"), ("quantile", "0.9"), ("queue", "false")]),
    Setting(&[("max-limit", "200"), ("quantile", "0.9"), ("queue", "true")]),
    Setting(&[("max-limit", "200"), ("quantile", "0.5"), ("queue", "false")]),
    Setting(&[("max-limit", "200"), ("quantile", "0.5"), ("queue", "true")]),
    Setting(&[("max-limit", "20"), ("quantile", "0.9"), ("queue", "false")]),
    Setting(&[("max-limit", "20"), ("quantile", "0.9"), ("queue", "true")]),
    Setting(&[("max-limit", "20"), ("quantile", "0.5"), ("queue", "false")]),
    Setting(&[("max-limit", "20"), ("quantile", "0.5"), ("queue", "true")]),
];

/// The three limits as they come and with their queue (last in, first out, at most 100 for a second); and
/// with a least of 4 where theirs is 20, which is more than the origin needs.
const CONCURRENCY_LIMITS: [Setting; TRIES] = [
    Setting(&[("limit", "vegas"), ("wait", "none")]),
    Setting(&[("limit", "vegas"), ("wait", "lifo")]),
    Setting(&[("limit", "gradient2"), ("wait", "none")]),
    Setting(&[("limit", "gradient2"), ("wait", "lifo")]),
    Setting(&[("limit", "gradient2"), ("wait", "none"), ("min", "4")]),
    Setting(&[("limit", "gradient2"), ("wait", "lifo"), ("min", "4")]),
    Setting(&[("limit", "aimd"), ("wait", "none"), ("min", "4"), ("timeout", "500")]),
    Setting(&[("limit", "aimd"), ("wait", "lifo"), ("min", "4"), ("timeout", "500")]),
];

/// Those whose name has this in it.
pub fn called(part: &str) -> Vec<Variant> {
    ALL.into_iter().filter(|variant| variant.name.contains(part)).collect()
}

impl Variant {
    /// The settings among which its best is looked for; none for nobody and for gates.
    pub const fn settings(&self) -> &'static [Setting] {
        self.settings
    }

    /// Whether it is one of those that gates are compared with.
    pub(super) const fn is_peer(&self) -> bool {
        !self.settings.is_empty()
    }

    /// What figures of it are of: where this is another, they are others.
    pub(super) fn figures_of(&self, setting: Setting, gatekeeper: &str) -> String {
        match self.way {
            Way::Gate(_) => gatekeeper.to_owned(),
            _ => setting.to_string(),
        }
    }

    /// Everything that is tried, for telling whether what was measured is still of the same.
    pub(super) fn settings_text(&self) -> String {
        let each: Vec<String> = self.settings.iter().map(Setting::to_string).collect();
        format!("{}: {}", self.name, each.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_as_many_settings_to_try_and_a_gate_has_none() {
        for variant in ALL {
            let settings = variant.settings();
            let expected = if matches!(variant.way, Way::Nobody | Way::Gate(_)) { 0 } else { TRIES };
            assert_eq!(settings.len(), expected, "{}", variant.name);
            for (number, setting) in settings.iter().enumerate() {
                assert!(!settings[..number].contains(setting), "{}: {setting} twice", variant.name);
                assert!(setting.0.iter().all(|(_, value)| !value.is_empty()), "{}: {setting}", variant.name);
            }
        }
        assert_eq!((GATE.name, GATE.way), ("gate", Way::Gate(&[])));
        assert_eq!(TARGETED.name, "gate, target = 150 ms");
    }

    #[test]
    fn a_setting_is_written_as_its_program_calls_it() {
        assert_eq!(HAPROXY[4].to_string(), "maxconn 4, timeout queue 1s");
        assert_eq!((HAPROXY[4].value("timeout queue"), HAPROXY[4].value("queue")), ("1s", ""));
        assert!(called("nothing").is_empty());
        assert_eq!(called("HAProxy").len(), 1);
    }
}
