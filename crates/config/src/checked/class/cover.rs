//! Whether a rule of a class fits all that another one fits: behind it the other never decides.

use admission::ClassId;

use super::{Class, FieldRule, Network, TagRule};

impl Class {
    /// Whether this rule fits all that `other` fits. A table without a rule fits nothing.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let is_rule = |class: &Self| class.name != ClassId::DEFAULT_NAME && class.has_rule();
        is_rule(self)
            && is_rule(other)
            && all(&self.paths, &other.paths, |wide, narrow| path(wide, narrow))
            && all(&self.hosts, &other.hosts, |wide, narrow| host(wide, narrow))
            && all(&self.fields, &other.fields, field)
            && all(&self.networks, &other.networks, network)
            && all(&self.users, &other.users, |wide, narrow| text(wide, narrow))
            && all(&self.databases, &other.databases, |wide, narrow| text(wide, narrow))
            && all(&self.applications, &other.applications, |wide, narrow| text(wide, narrow))
            && all(&self.types, &other.types, |wide, narrow| wide == narrow)
            && all(&self.tags, &other.tags, |wide: &TagRule, narrow| wide == narrow)
    }
}

/// Whether each of the narrow ones is in one of the wide ones; no wide one stands for any.
fn all<T>(wide: &[T], narrow: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    let is_covered = |narrow: &T| wide.iter().any(|wide| covers(wide, narrow));
    wide.is_empty() || !narrow.is_empty() && narrow.iter().all(is_covered)
}

fn path(wide: &str, narrow: &str) -> bool {
    fn segments(path: &str) -> impl Iterator<Item = &str> {
        path.split('/').filter(|segment| !segment.is_empty())
    }
    let mut narrow = segments(narrow);
    for segment in segments(wide) {
        match (segment, narrow.next()) {
            ("**", _) => return true,
            ("*", Some(segment)) if segment != "**" => {}
            (segment, Some(other)) if segment == other => {}
            _ => return false,
        }
    }
    narrow.next().is_none()
}

fn host(wide: &str, narrow: &str) -> bool {
    match wide.strip_prefix('*') {
        Some(end) => narrow.len() > end.len() && narrow.ends_with(end),
        None => wide == narrow,
    }
}

fn field(wide: &FieldRule, narrow: &FieldRule) -> bool {
    wide.name == narrow.name && (wide.value.is_none() || wide.value == narrow.value)
}

fn network(wide: &Network, narrow: &Network) -> bool {
    let bits = |network: &Network| match network.address {
        std::net::IpAddr::V4(address) => (32, u128::from(address.to_bits()) << 96),
        std::net::IpAddr::V6(address) => (128, address.to_bits()),
    };
    let ((size, ours), (other_size, theirs)) = (bits(wide), bits(narrow));
    let kept = |value: u128| value.checked_shr(128 - u32::from(wide.bits)).unwrap_or(0);
    size == other_size && wide.bits <= narrow.bits && kept(ours) == kept(theirs)
}

fn text(wide: &str, narrow: &str) -> bool {
    match wide.strip_suffix('*') {
        Some(beginning) => narrow.starts_with(beginning),
        None => wide == narrow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_what_it_fits() {
        for (wide, narrow, covers) in [
            ("/a/**", "/a/*/c", true),
            ("/a/**", "/a", true),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/**", false),
            ("/a/b", "/a/*", false),
            ("/**", "/**", true),
            ("/a", "/a/b", false),
        ] {
            assert_eq!(path(wide, narrow), covers, "{wide} {narrow}");
        }
        for (wide, narrow, covers) in
            [("*.x", "*.y.x", true), ("*.x", "y.x", true), ("*.x", "x", false), ("y.x", "*.x", false)]
        {
            assert_eq!(host(wide, narrow), covers, "{wide} {narrow}");
        }
        for (wide, narrow, covers) in [("a*", "ab", true), ("a*", "a*", true), ("ab", "a*", false)] {
            assert_eq!(text(wide, narrow), covers, "{wide} {narrow}");
        }
        let of = |text: &str, bits| Network { address: text.parse().unwrap(), bits };
        assert!(network(&of("10.0.0.0", 8), &of("10.1.0.0", 16)));
        assert!(network(&of("0.0.0.0", 0), &of("10.1.0.0", 16)));
        assert!(!network(&of("10.1.0.0", 16), &of("10.0.0.0", 8)));
        assert!(!network(&of("::", 0), &of("10.0.0.0", 8)));
    }

    #[test]
    fn a_rule_covers_only_those_that_ask_for_no_less() {
        let rule = |user: &[&str], database: &[&str]| Class {
            name: "x".into(),
            users: user.iter().map(|text| (*text).to_owned()).collect(),
            databases: database.iter().map(|text| (*text).to_owned()).collect(),
            ..Class::default()
        };
        assert!(rule(&["a", "b"], &[]).covers(&rule(&["b"], &["shop"])));
        assert!(!rule(&["b"], &["shop"]).covers(&rule(&["b"], &[])));
        assert!(!rule(&["a"], &[]).covers(&rule(&["a", "b"], &[])));
        assert!(!rule(&[], &[]).covers(&rule(&["a"], &[])), "a table without a rule fits nothing");
    }
}
