//! Whose request it is: its service class, by the rules of the configuration. The first that fits has the
//! say.

use std::net::IpAddr;
use std::sync::Arc;

use admission::ClassId;
use http::header;
use http::{HeaderMap, Request};
use parking_lot::RwLock;

use super::classify::fits_path;
use super::fields::{From, client_of};
use super::state::Network;

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
}

/// A class by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassName {
    pub(crate) id: ClassId,
    pub(crate) name: Arc<str>,
}

impl ClassName {
    fn of(name: &str) -> Self {
        Self { id: ClassId::named(name), name: Arc::from(name) }
    }
}

#[derive(Debug)]
struct Rules {
    rules: Vec<(ClassRule, ClassName)>,
    default: ClassName,
    /// Whether any rule asks for the client.
    asks_for_client: bool,
}

impl Rules {
    fn new(rules: Vec<ClassRule>) -> Self {
        Self {
            asks_for_client: rules.iter().any(|rule| !rule.networks.is_empty()),
            default: ClassName::of(ClassId::DEFAULT_NAME),
            rules: rules
                .into_iter()
                .map(|rule| {
                    let name = ClassName::of(&rule.name);
                    (rule, name)
                })
                .collect(),
        }
    }
}

/// The classes of one gate.
#[derive(Debug)]
pub(crate) struct Classes(RwLock<Rules>);

impl Classes {
    pub(crate) fn new(rules: Vec<ClassRule>) -> Self {
        Self(RwLock::new(Rules::new(rules)))
    }

    /// Other rules, from now on.
    pub(crate) fn change(&self, rules: Vec<ClassRule>) {
        *self.0.write() = Rules::new(rules);
    }

    /// The class of a request whose path has this normal form; `None` where there is one class only.
    pub(crate) fn of<B>(
        &self,
        request: &Request<B>,
        path: &str,
        from: &From,
        trusted: &[Network],
    ) -> Option<ClassName> {
        let known = self.0.read();
        if known.rules.is_empty() {
            return None;
        }
        let client = known.asks_for_client.then(|| client_of(request.headers(), from, trusted)).flatten();
        let rule = known.rules.iter().find(|(rule, _)| rule.fits(request, path, client));
        Some(rule.map_or(&known.default, |(_, name)| name).clone())
    }

    /// All classes with their names.
    pub(crate) fn names(&self) -> Vec<(ClassId, Arc<str>)> {
        let known = self.0.read();
        let names = known.rules.iter().map(|(_, name)| name).chain([&known.default]);
        names.map(|name| (name.id, Arc::clone(&name.name))).collect()
    }

    /// What a class is called.
    pub(crate) fn name(&self, id: ClassId) -> Option<Arc<str>> {
        let known = self.0.read();
        let mut names = known.rules.iter().map(|(_, name)| name).chain([&known.default]);
        names.find(|name| name.id == id).map(|name| Arc::clone(&name.name))
    }
}

impl ClassRule {
    fn fits<B>(&self, request: &Request<B>, path: &str, client: Option<IpAddr>) -> bool {
        let in_network = |network: &Network| client.is_some_and(|client| network.contains(client));
        (self.paths.is_empty() || self.paths.iter().any(|wanted| fits_path(wanted, path)))
            && (self.hosts.is_empty() || host(request).is_some_and(|host| self.fits_host(&host)))
            && (self.fields.is_empty() || self.fits_field(request.headers()))
            && (self.networks.is_empty() || self.networks.iter().any(in_network))
    }

    fn fits_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|wanted| match wanted.strip_prefix('*') {
            Some(end) => host.len() > end.len() && host.ends_with(end),
            None => host == wanted,
        })
    }

    fn fits_field(&self, fields: &HeaderMap) -> bool {
        self.fields.iter().any(|(name, wanted)| match wanted {
            Some(wanted) => fields.get_all(name.as_str()).iter().any(|value| value == wanted.as_str()),
            None => fields.contains_key(name.as_str()),
        })
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
    use super::*;

    fn from(address: &str, trusted: bool) -> From {
        From::new(Some(address.parse().unwrap()), false, trusted)
    }

    fn class(rules: &[ClassRule], uri: &str, fields: &[(&str, &str)], from: From) -> String {
        let builder =
            fields.iter().fold(Request::builder().uri(uri), |it, (name, value)| it.header(*name, *value));
        let trusted = [Network { address: "10.0.0.0".parse().unwrap(), bits: 8 }];
        let classes = Classes::new(rules.to_vec());
        let request = builder.body(()).unwrap();
        let found = classes.of(&request, request.uri().path(), &from, &trusted);
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
