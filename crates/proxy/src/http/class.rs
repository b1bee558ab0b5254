//! Whose request it is: its service class, by the rules of the configuration. The first that fits has the
//! say.

use std::collections::HashMap;
use std::hash::Hash as _;

use admission::{ClassId, TenantId};
use http::header::{self, HeaderName};
use http::{HeaderMap, Request};

use super::fields::{From, client_of};
use crate::classes::index::{Beginnings, Equal, Index, Networks, Rules, Set, Wanted};
use crate::classes::{ClassName, Classes, Rule, TenantBy};
use crate::network::{Network, home_of};

/// A rule of the configuration: requests that fit belong to this class. Of each list one has to fit, if
/// there is any in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRule {
    /// What the class is called.
    pub name: String,
    /// The [`rule_segments`](super::rule_segments) of each path: `*` is any one, `**` at the end any number.
    pub paths: Vec<Vec<String>>,
    /// In lower case; with `*.` at the beginning for any that ends so.
    pub hosts: Vec<String>,
    /// A field in lower case, and its value if that matters.
    pub fields: Vec<(String, Option<String>)>,
    /// Where its client is.
    pub networks: Vec<Network>,
    /// What its class's tenants are known by, if this table says it.
    pub tenant: Option<TenantBy>,
}

impl Rule for ClassRule {
    fn of(&self) -> (&str, Option<&TenantBy>) {
        (&self.name, self.tenant.as_ref())
    }
}

/// The rules of one gate.
#[derive(Debug)]
pub(crate) struct HttpRules {
    all: Set,
    paths: Wanted<Paths>,
    hosts: Wanted<Hosts>,
    fields: Wanted<Fields>,
    networks: Wanted<Networks>,
}

impl HttpRules {
    fn new(rules: &[ClassRule]) -> Self {
        Self {
            all: Set::all(rules.len()),
            paths: Wanted::new(rules.iter().map(|rule| rule.paths.iter().map(Vec::as_slice))),
            hosts: Wanted::new(rules.iter().map(|rule| rule.hosts.iter().map(String::as_str))),
            fields: Wanted::new(rules.iter().map(|rule| &rule.fields)),
            networks: Wanted::new(rules.iter().map(|rule| &rule.networks)),
        }
    }

    /// The place of the first rule that fits.
    fn first<B>(
        &self,
        request: &Request<B>,
        path: &str,
        (from, trusted): (&From, &[Network]),
    ) -> Option<usize> {
        let mut left = self.all.clone();
        self.paths.narrow(&mut left, |paths, found| paths.find(path, found));
        self.hosts.narrow(&mut left, |hosts, found| {
            host(request).into_iter().for_each(|host| hosts.find(&host, found));
        });
        self.fields.narrow(&mut left, |fields, found| fields.find(request.headers(), found));
        self.networks.narrow(&mut left, |networks, found| {
            let client = client_of(request.headers(), from, trusted);
            client.into_iter().for_each(|client| networks.find(client, found));
        });
        left.first()
    }
}

/// The classes of a gate for HTTP.
pub(crate) type HttpClasses = Classes<HttpRules>;

impl HttpClasses {
    /// Classes by these rules.
    pub(crate) fn by(rules: &[ClassRule]) -> Self {
        Self::new(rules, HttpRules::new)
    }

    /// Takes other rules.
    pub(crate) fn follow(&self, rules: &[ClassRule]) {
        self.change(rules, HttpRules::new);
    }

    /// The tenant of a request of this class. All requests without a name are one tenant.
    pub(crate) fn tenant_of<B>(
        &self,
        class: ClassId,
        request: &Request<B>,
        from: &From,
        trusted: &[Network],
    ) -> Option<TenantId> {
        self.tenant(class, |by, hasher| match by {
            TenantBy::Header(name) => {
                request.headers().get_all(name).iter().for_each(|value| value.hash(hasher));
            }
            TenantBy::Network | TenantBy::User => {
                client_of(request.headers(), from, trusted).map(home_of).hash(hasher);
            }
        })
    }

    /// The class of a request whose path has this normal form; `None` where there is one class only.
    pub(crate) fn class_of<B>(
        &self,
        request: &Request<B>,
        path: &str,
        from: &From,
        trusted: &[Network],
    ) -> Option<ClassName> {
        self.of(|rules| rules.first(request, path, (from, trusted)))
    }
}

/// The paths of rules, as a tree of their segments; its root is the first place.
#[derive(Debug)]
struct Paths(Vec<Place>);

/// What begins alike.
#[derive(Debug, Default)]
struct Place {
    segments: HashMap<Box<str>, usize>,
    /// Behind a segment `*`.
    any: Option<usize>,
    /// The rules whose path ends here.
    ends: Rules,
    /// The rules whose path has `**` here.
    rests: Rules,
}

impl Default for Paths {
    fn default() -> Self {
        Self(vec![Place::default()])
    }
}

impl Index for Paths {
    type Value = [String];

    fn add(&mut self, rule: usize, segments: &[String]) {
        let mut at = 0;
        for segment in segments {
            let new = self.0.len();
            let place = &mut self.0[at];
            at = match segment.as_str() {
                "**" => return place.rests.add(rule),
                "*" => *place.any.get_or_insert(new),
                segment => *place.segments.entry(segment.into()).or_insert(new),
            };
            if at == new {
                self.0.push(Place::default());
            }
        }
        self.0[at].ends.add(rule);
    }
}

impl Paths {
    fn find(&self, path: &str, found: &mut Set) {
        self.find_below(0, path.split('/').filter(|segment| !segment.is_empty()), found);
    }

    /// A place is reached by one way only. So there are never more steps than places, nor deeper ones than
    /// the longest path of a rule.
    fn find_below<'a>(&self, at: usize, mut rest: impl Iterator<Item = &'a str> + Clone, found: &mut Set) {
        let place = &self.0[at];
        place.rests.add_to(found);
        let Some(segment) = rest.next() else { return place.ends.add_to(found) };
        for below in [place.segments.get(segment).copied(), place.any].into_iter().flatten() {
            self.find_below(below, rest.clone(), found);
        }
    }
}

/// Hosts; with `*.` at the beginning any that ends so.
#[derive(Debug, Default)]
struct Hosts {
    whole: Equal<Box<str>>,
    /// Of hosts from their last byte to the first.
    ends: Beginnings,
}

impl Index for Hosts {
    type Value = str;

    fn add(&mut self, rule: usize, host: &str) {
        match host.strip_prefix('*') {
            Some(end) => self.ends.add(rule, end.bytes().rev().collect()),
            None => self.whole.add(rule, &host.into()),
        }
    }

    fn end(&mut self) {
        self.ends.end();
    }
}

impl Hosts {
    fn find(&self, host: &str, found: &mut Set) {
        self.whole.find(host, found);
        // Something has to come before the end.
        let mut back: Vec<u8> = host.bytes().rev().collect();
        back.pop();
        self.ends.find(&back, found);
    }
}

/// Fields by their names.
#[derive(Debug, Default)]
struct Fields(HashMap<HeaderName, Field>);

#[derive(Debug, Default)]
struct Field {
    /// The rules that want any value.
    any: Rules,
    values: Equal<Box<[u8]>>,
}

impl Index for Fields {
    type Value = (String, Option<String>);

    fn add(&mut self, rule: usize, (name, value): &Self::Value) {
        // The configuration lets no other names in.
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { return };
        let field = self.0.entry(name).or_default();
        match value {
            Some(value) => field.values.add(rule, &value.as_bytes().into()),
            None => field.any.add(rule),
        }
    }
}

impl Fields {
    fn find(&self, fields: &HeaderMap, found: &mut Set) {
        let mut add = |known: &Field, value: &[u8]| {
            known.any.add_to(found);
            known.values.find(value, found);
        };
        if self.0.len() <= fields.keys_len() {
            for (name, known) in &self.0 {
                fields.get_all(name).iter().for_each(|value| add(known, value.as_bytes()));
            }
        } else {
            for (name, value) in fields {
                self.0.get(name).into_iter().for_each(|known| add(known, value.as_bytes()));
            }
        }
    }
}

/// The host that is asked, in lower case, without its port and without the dot that may end it: as the
/// service will be told it.
fn host<B>(request: &Request<B>) -> Option<String> {
    let named = || {
        let field = request.headers().get(header::HOST)?.to_str().ok()?;
        field.parse::<http::uri::Authority>().ok()
    };
    let authority = request.uri().authority().cloned().or_else(named)?;
    let host = authority.host();
    Some(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::super::classify::fits_path;
    use super::*;
    use crate::classes::index::{LOOK_UPS, RULES_MAX, tell_cost};

    fn from(address: &str, trusted: bool) -> From {
        From::new(Some(address.parse().unwrap()), false, trusted)
    }

    fn class(rules: &[ClassRule], uri: &str, fields: &[(&str, &str)], from: From) -> String {
        let builder =
            fields.iter().fold(Request::builder().uri(uri), |it, (name, value)| it.header(*name, *value));
        let trusted = [Network { address: "10.0.0.0".parse().unwrap(), bits: 8 }];
        let classes = HttpClasses::by(rules);
        let request = builder.body(()).unwrap();
        let found = classes.class_of(&request, request.uri().path(), &from, &trusted);
        found.map_or_else(|| "none".to_owned(), |name| name.name.to_string())
    }

    fn named(name: &str) -> ClassRule {
        ClassRule { name: name.to_owned(), ..ClassRule::default() }
    }

    #[test]
    fn each_kind_of_rule_fits_what_it_says_and_the_first_has_the_say() {
        let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let rules = [
            ClassRule { paths: vec![text(&["api", "**"])], hosts: text(&["b2b.example"]), ..named("both") },
            ClassRule { paths: vec![text(&["api", "**"]), text(&["x"])], ..named("path") },
            ClassRule { hosts: text(&["*.shop.example", "shop.example"]), ..named("host") },
            ClassRule {
                fields: vec![("x-tenant".to_owned(), Some("gold".to_owned())), ("x-vip".to_owned(), None)],
                ..named("field")
            },
            ClassRule {
                networks: vec![Network { address: "192.0.2.0".parse().unwrap(), bits: 24 }],
                ..named("network")
            },
        ];
        let of = |uri: &str, fields: &[(&str, &str)]| class(&rules, uri, fields, from("198.51.100.1", false));
        assert_eq!(of("/api/7", &[("host", "b2b.example:8080")]), "both");
        assert_eq!(of("/api/7", &[]), "path");
        assert_eq!(of("/x", &[]), "path");
        assert_eq!(of("/y", &[("host", "A.B.Shop.Example.")]), "host");
        assert_eq!(of("http://shop.example:81/y", &[("host", "other.example")]), "host", "the target's own");
        assert_eq!(of("/y", &[("host", "badshop.example")]), "default");
        assert_eq!(of("/y", &[("x-tenant", "silver"), ("x-tenant", "gold")]), "field");
        assert_eq!(of("/y", &[("x-tenant", "gold2")]), "default");
        assert_eq!(of("/y", &[("x-vip", "")]), "field");
        assert_eq!(class(&rules, "/y", &[], from("::ffff:192.0.2.9", false)), "network");
        assert_eq!(class(&[], "/y", &[], from("192.0.2.9", false)), "none");
    }

    #[test]
    fn the_first_rule_is_found_that_fits_when_each_is_asked() {
        let one_of = |all: &[&str]| all[rand::random_range(0..all.len())].to_owned();
        let segment = || one_of(&["a", "b", "c", "*"]);
        let path = || {
            let mut path: Vec<String> = (0..rand::random_range(0..4)).map(|_| segment()).collect();
            path.extend(rand::random::<bool>().then(|| "**".to_owned()));
            path
        };
        let some = |make: &dyn Fn() -> String| (0..rand::random_range(0..3)).map(|_| make()).collect();
        for _ in 0..200 {
            let rules: Vec<ClassRule> = (0..rand::random_range(1..100))
                .map(|_| ClassRule {
                    paths: (0..rand::random_range(0..3)).map(|_| path()).collect(),
                    hosts: some(&|| one_of(&["x", "y.x", "*.x", "*.y.x", "z.y.x"])),
                    fields: (0..rand::random_range(0..2))
                        .map(|_| {
                            (one_of(&["p", "q", "r"]), rand::random::<bool>().then(|| one_of(&["1", "2"])))
                        })
                        .collect(),
                    ..named("x")
                })
                .collect();
            let index = HttpRules::new(&rules);
            for _ in 0..50 {
                let path = format!("/{}/{}/{}", segment(), one_of(&["a", "b", ""]), one_of(&["c", ""]));
                let host = one_of(&["x", "y.x", "z.y.x", "w.z.y.x", "other"]);
                let builder = Request::builder().uri(&path).header("host", &host);
                let builder = builder.header(one_of(&["p", "q", "s"]), one_of(&["1", "2", "3"]));
                let request = builder.body(()).unwrap();
                let ends = |wanted: &String| match wanted.strip_prefix('*') {
                    Some(end) => host.len() > end.len() && host.ends_with(end),
                    None => host == *wanted,
                };
                let has = |(name, value): &(String, Option<String>)| {
                    let is =
                        |it: &http::HeaderValue| value.as_ref().is_none_or(|wanted| it == wanted.as_str());
                    request.headers().get_all(name.as_str()).iter().any(is)
                };
                let fits = |rule: &ClassRule| {
                    (rule.paths.is_empty() || rule.paths.iter().any(|wanted| fits_path(wanted, &path)))
                        && (rule.hosts.is_empty() || rule.hosts.iter().any(ends))
                        && (rule.fields.is_empty() || rule.fields.iter().any(has))
                };
                let found = index.first(&request, &path, (&from("192.0.2.1", false), &[]));
                assert_eq!(found, rules.iter().position(fits), "{path} {host} {request:?}\n{rules:#?}");
            }
        }
    }

    #[test]
    fn a_thousand_rules_cost_as_many_look_ups_as_a_request_has_values() {
        let rules: Vec<ClassRule> = (0..RULES_MAX)
            .map(|at| ClassRule {
                paths: vec![vec!["api".to_owned(), format!("v{at}"), "**".to_owned()]],
                hosts: vec!["shop.example".to_owned(), format!("*.b{at}.example")],
                fields: vec![("x-tenant".to_owned(), Some(format!("t{at}")))],
                ..named("x")
            })
            .collect();
        let index = HttpRules::new(&rules);
        let request = |tenant: &str| {
            let builder = Request::builder().uri("/api/v999/cart");
            builder.header("host", "shop.b999.example").header("x-tenant", tenant).body(()).unwrap()
        };
        let (from, one, other) = (from("192.0.2.1", false), request("t999"), request("t998"));
        let before = LOOK_UPS.get();
        assert_eq!(index.first(&one, "/api/v999/cart", (&from, &[])), Some(999));
        // The host whole and two ends of it, and the field's value; a path is a walk along its segments.
        assert!(LOOK_UPS.get() - before <= 4, "{}", LOOK_UPS.get() - before);
        assert_eq!(index.first(&other, "/api/v999/cart", (&from, &[])), None);
        tell_cost("HTTP", || index.first(&one, "/api/v999/cart", (&from, &[])));
    }

    #[test]
    fn a_thousand_rules_that_nest_and_fork_cost_as_many_look_ups() {
        let host = |labels: usize| "a.".repeat(labels) + "example";
        let fork = |at: usize, depth| {
            let segment = |level: usize| if at >> level & 1 == 1 { "a" } else { "*" };
            (0..depth).map(segment).map(str::to_owned).collect::<Vec<_>>()
        };
        let rules: Vec<ClassRule> = (0..RULES_MAX)
            .map(|at| ClassRule {
                hosts: vec![format!("*.{}", host(at % 120))],
                networks: vec![Network { address: "2001:db8::".parse().unwrap(), bits: (at % 129) as u8 }],
                ..named("x")
            })
            .collect();
        let index = HttpRules::new(&rules);
        let request = Request::builder().uri("/").header("host", host(121)).body(()).unwrap();
        let from = from("2001:db8::", false);
        let before = LOOK_UPS.get();
        assert_eq!(index.first(&request, "/", (&from, &[])), Some(0));
        assert!(LOOK_UPS.get() - before <= 3, "{}", LOOK_UPS.get() - before);
        tell_cost("HTTP, 120 nested hosts and 129 nested networks", || {
            index.first(&request, "/", (&from, &[]))
        });
        // Where a `*` stands beside each segment, every way is tried: as many as there are rules.
        let rules: Vec<_> =
            (0..RULES_MAX).map(|at| ClassRule { paths: vec![fork(at, 10)], ..named("x") }).collect();
        let (index, path) = (HttpRules::new(&rules), "/a".repeat(10));
        assert_eq!(index.first(&request, &path, (&from, &[])), Some(0));
        tell_cost("HTTP, paths that fork at ten segments", || index.first(&request, &path, (&from, &[])));
    }

    #[test]
    fn a_client_is_believed_only_through_proxies_that_are_trusted() {
        let rules = [ClassRule {
            networks: vec![Network { address: "192.0.2.0".parse().unwrap(), bits: 24 }],
            ..named("network")
        }];
        let of = |said: &str, address: &str| {
            let from = from(address, address.starts_with("10."));
            class(&rules, "/", &[("x-forwarded-for", said)], from)
        };
        assert_eq!(of("192.0.2.1", "198.51.100.1"), "default", "it says so of itself");
        assert_eq!(of("192.0.2.1", "10.0.0.1"), "network");
        assert_eq!(of("192.0.2.1, 10.9.9.9", "10.0.0.1"), "network", "through two proxies");
        assert_eq!(of("192.0.2.1, 198.51.100.1", "10.0.0.1"), "default", "the last that isn't trusted");
        assert_eq!(of("198.51.100.1, 192.0.2.1:4711", "10.0.0.1"), "network", "with a port");
        assert_eq!(of("192.0.2.1, nonsense", "10.0.0.1"), "default", "nobody vouches beyond it");
    }
}
