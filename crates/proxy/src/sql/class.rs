//! Whose transaction or statement it is: its service class, by the rules of a gate for SQL.
//!
//! Both gates for SQL tell the same of a unit; what protocol it came by matters to no rule.

use std::hash::Hash as _;
use std::net::IpAddr;

use admission::{ClassId, RequestType, TenantId};
use wire::sql::comment::pair_hash;

use crate::classes::index::{Equal, Networks, Set, Texts, Wanted};
use crate::classes::{Classes, Rule, TenantBy};
use crate::network::{Network, home_of};

/// A rule of the configuration: units that fit belong to this class. Of each list one has to fit, if there
/// is any in it. A text with `*` at its end fits all that begin so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlClassRule {
    /// What the class is called.
    pub name: String,
    /// The users that logged in.
    pub users: Vec<String>,
    /// The databases.
    pub databases: Vec<String>,
    /// What applications call themselves.
    pub applications: Vec<String>,
    /// Where clients are.
    pub networks: Vec<Network>,
    /// The types of units.
    pub types: Vec<RequestType>,
    /// The keys and values of tags in comments.
    pub tags: Vec<(String, String)>,
    /// What its class's tenants are known by, if this table says it.
    pub tenant: Option<TenantBy>,
}

impl Rule for SqlClassRule {
    fn of(&self) -> (&str, Option<&TenantBy>) {
        (&self.name, self.tenant.as_ref())
    }
}

/// What a gate tells of a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit<'a> {
    pub(crate) user: &'a [u8],
    pub(crate) database: &'a [u8],
    pub(crate) application: &'a [u8],
    /// `None`: by a Unix socket.
    pub(crate) client: Option<IpAddr>,
    pub(crate) request_type: RequestType,
    /// The hashes of tags.
    pub(crate) tags: &'a [u64],
}

/// The rules of one gate.
#[derive(Debug)]
pub(crate) struct SqlRules {
    all: Set,
    users: Wanted<Texts>,
    databases: Wanted<Texts>,
    applications: Wanted<Texts>,
    networks: Wanted<Networks>,
    types: Wanted<Equal<RequestType>>,
    tags: Wanted<Equal<u64>>,
}

impl SqlRules {
    fn new(rules: &[SqlClassRule]) -> Self {
        let texts = |list: fn(&SqlClassRule) -> &Vec<String>| {
            Wanted::new(rules.iter().map(|rule| list(rule).iter().map(String::as_str)))
        };
        let tags: Vec<Vec<u64>> = rules
            .iter()
            .map(|rule| rule.tags.iter().map(|(key, value)| pair_hash(key, value)).collect())
            .collect();
        Self {
            all: Set::all(rules.len()),
            users: texts(|rule| &rule.users),
            databases: texts(|rule| &rule.databases),
            applications: texts(|rule| &rule.applications),
            networks: Wanted::new(rules.iter().map(|rule| &rule.networks)),
            types: Wanted::new(rules.iter().map(|rule| &rule.types)),
            tags: Wanted::new(tags.iter()),
        }
    }

    /// The place of the first rule that fits.
    fn first(&self, unit: &Unit<'_>) -> Option<usize> {
        let mut left = self.all.clone();
        self.users.narrow(&mut left, |index, found| index.find(unit.user, found));
        self.databases.narrow(&mut left, |index, found| index.find(unit.database, found));
        self.applications.narrow(&mut left, |index, found| index.find(unit.application, found));
        self.types.narrow(&mut left, |index, found| index.find(&unit.request_type, found));
        self.networks.narrow(&mut left, |index, found| {
            unit.client.into_iter().for_each(|client| index.find(client, found));
        });
        self.tags.narrow(&mut left, |index, found| unit.tags.iter().for_each(|tag| index.find(tag, found)));
        left.first()
    }
}

/// The classes of a gate for SQL.
pub(crate) type SqlClasses = Classes<SqlRules>;

impl SqlClasses {
    /// Classes by these rules.
    pub(crate) fn by(rules: &[SqlClassRule]) -> Self {
        Self::new(rules, SqlRules::new)
    }

    /// Takes other rules.
    pub(crate) fn follow(&self, rules: &[SqlClassRule]) {
        self.change(rules, SqlRules::new);
    }

    /// The class of a unit. A unit is only looked at where there are several.
    pub(crate) fn class_of<'a>(&self, unit: impl FnOnce() -> Unit<'a>) -> ClassId {
        self.of(|rules| rules.first(&unit())).map_or(ClassId::DEFAULT, |class| class.id)
    }

    /// The tenant of a unit of this class.
    pub(crate) fn tenant_of<'a>(&self, class: ClassId, unit: impl FnOnce() -> Unit<'a>) -> Option<TenantId> {
        self.tenant(class, |by, hasher| match by {
            TenantBy::User | TenantBy::Header(_) => unit().user.hash(hasher),
            TenantBy::Network => unit().client.map(home_of).hash(hasher),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::index::{LOOK_UPS, RULES_MAX};

    const NOBODY: Unit<'_> = Unit {
        user: b"",
        database: b"",
        application: b"",
        client: None,
        request_type: RequestType(0),
        tags: &[],
    };

    /// Whether a rule fits, asked by itself.
    fn fits(rule: &SqlClassRule, unit: &Unit<'_>) -> bool {
        let text = |wanted: &[String], text: &[u8]| {
            wanted.is_empty()
                || wanted.iter().any(|wanted| match wanted.strip_suffix('*') {
                    Some(beginning) => text.starts_with(beginning.as_bytes()),
                    None => wanted.as_bytes() == text,
                })
        };
        let in_network = |network: &Network| unit.client.is_some_and(|client| network.contains(client));
        let has_tag = |(key, value): &(String, String)| unit.tags.contains(&pair_hash(key, value));
        text(&rule.users, unit.user)
            && text(&rule.databases, unit.database)
            && text(&rule.applications, unit.application)
            && (rule.networks.is_empty() || rule.networks.iter().any(in_network))
            && (rule.types.is_empty() || rule.types.contains(&unit.request_type))
            && (rule.tags.is_empty() || rule.tags.iter().any(has_tag))
    }

    fn some<T>(mut make: impl FnMut() -> T) -> Vec<T> {
        (0..rand::random_range(0..3)).map(|_| make()).collect()
    }

    fn name() -> String {
        let name = ["a", "ab", "abc", "b", ""][rand::random_range(0..5)];
        format!("{name}{}", if rand::random() { "*" } else { "" })
    }

    fn rule() -> SqlClassRule {
        let network = || Network {
            address: [10, rand::random_range(0..2), 0, 0].into(),
            bits: [8, 16, 32][rand::random_range(0..3)],
        };
        SqlClassRule {
            name: "x".to_owned(),
            users: some(name),
            databases: some(name),
            applications: some(name),
            networks: some(network),
            types: some(|| RequestType(rand::random_range(0..3))),
            tags: some(|| ("key".to_owned(), name())),
            tenant: None,
        }
    }

    #[test]
    fn the_first_rule_is_found_that_fits_when_each_is_asked() {
        for _ in 0..200 {
            let rules: Vec<SqlClassRule> = (0..rand::random_range(1..100)).map(|_| rule()).collect();
            let index = SqlRules::new(&rules);
            for _ in 0..50 {
                let (user, database, application) = (name(), name(), name());
                let tags: Vec<u64> = some(|| pair_hash("key", &name()));
                let unit = Unit {
                    user: user.as_bytes(),
                    database: database.as_bytes(),
                    application: application.as_bytes(),
                    client: rand::random::<bool>().then(|| [10, rand::random_range(0..2), 0, 0].into()),
                    request_type: RequestType(rand::random_range(0..3)),
                    tags: &tags,
                };
                let expected = rules.iter().position(|rule| fits(rule, &unit));
                assert_eq!(index.first(&unit), expected, "{unit:?}\n{rules:#?}");
            }
        }
    }

    #[test]
    fn a_thousand_rules_cost_as_many_look_ups_as_a_unit_has_values() {
        let rules: Vec<SqlClassRule> = (0..RULES_MAX)
            .map(|at| SqlClassRule {
                name: "x".to_owned(),
                users: vec![format!("user{at}")],
                databases: vec!["shop".to_owned()],
                applications: vec![format!("application{at}*")],
                ..SqlClassRule::default()
            })
            .collect();
        let index = SqlRules::new(&rules);
        let unit = Unit { user: b"user999", database: b"shop", application: b"application999-7", ..NOBODY };
        let before = LOOK_UPS.get();
        assert_eq!(index.first(&unit), Some(999));
        // Beginnings of three lengths, and what is whole.
        assert!(LOOK_UPS.get() - before <= 6, "{}", LOOK_UPS.get() - before);
        assert_eq!(index.first(&Unit { user: b"user998", ..unit }), None);
        crate::classes::index::tell_cost("SQL", || index.first(&unit));
    }

    #[test]
    fn a_thousand_rules_of_nested_beginnings_and_networks_cost_as_many_look_ups() {
        let text = |length: usize| "a".repeat(length);
        let rules: Vec<SqlClassRule> = (0..RULES_MAX)
            .map(|at| SqlClassRule {
                users: vec![text(at % 250) + "*"],
                databases: vec![text(250 - at % 250) + "*"],
                applications: vec![text(at % 200) + "*"],
                networks: vec![Network { address: "2001:db8::".parse().unwrap(), bits: (at % 129) as u8 }],
                ..SqlClassRule::default()
            })
            .collect();
        let index = SqlRules::new(&rules);
        let (long, other) = (text(300), text(99) + &"b".repeat(200));
        let client = Some("2001:db8::".parse().unwrap());
        let unit = |user, database| Unit { user, database, application: b"aaa", client, ..NOBODY };
        let (all, some) = (unit(long.as_bytes(), long.as_bytes()), unit(other.as_bytes(), long.as_bytes()));
        for unit in [all, some] {
            let before = LOOK_UPS.get();
            assert_eq!(index.first(&unit), Some(0));
            assert!(LOOK_UPS.get() - before <= 7, "{}", LOOK_UPS.get() - before);
            crate::classes::index::tell_cost("SQL, nested", || index.first(&unit));
        }
    }
}
