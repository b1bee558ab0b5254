//! What a request is: its type, and when its answer is of no use any more.
//!
//! The type is, first to last: what the application has called requests like this one (its field [`TYPE`]
//! in responses), the rule of the configuration that fits, the template of its path as it is known
//! (`routes.rs`), with a parameter where that tells its requests apart (`parameters.rs`).
//!
//! | field | what it says |
//! |---|---|
//! | `grpc-timeout` | a number and one of `H M S m u n`, as gRPC defines it |
//! | `x-request-timeout` | seconds, or a number with `ms` or `s` |
//! | `x-client-timeout-ms`, `x-envoy-expected-rq-timeout-ms` | milliseconds |

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use lru::LruCache;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::files::Files;
use super::key::named;
use super::own_fields::TYPE;
use super::parameters::{self, Parameters};
use super::routes::Routes;
use crate::gate::Driver;
use crate::observe::TypeName;

/// Paths whose name is remembered.
const NAMED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// A longer name is none.
const NAME_MAX: usize = 64;
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");
static MILLISECONDS: [HeaderName; 2] = [
    HeaderName::from_static("x-client-timeout-ms"),
    HeaderName::from_static("x-envoy-expected-rq-timeout-ms"),
];

/// A rule of the configuration: requests that fit have this type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeRule {
    /// Only with this method.
    pub method: Option<String>,
    /// The [`rule_segments`](super::rule_segments) of the path: `*` is any one, `**` at the end any number.
    pub path: Vec<String>,
    /// What requests of the type are called.
    pub name: String,
    /// The files that the gate answers them with; `None`: the service answers.
    pub files: Option<Arc<Files>>,
}

/// What becomes of `x-gatekeeper-type` in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TypeField {
    /// It is used, and taken off.
    #[default]
    Use,
    /// It is passed on.
    Ignore,
}

/// What the configuration says of types.
#[derive(Debug)]
struct Words {
    rules: Vec<(TypeRule, TypeName)>,
    field: TypeField,
}

impl Words {
    fn new(rules: Vec<TypeRule>, field: TypeField) -> Self {
        let rules = rules.into_iter().map(|rule| {
            let name = named(&rule.name);
            (rule, name)
        });
        Self { rules: rules.collect(), field }
    }
}

/// What the types of one gate's requests are.
#[derive(Debug)]
pub(crate) struct Classifier {
    words: RwLock<Words>,
    routes: Routes,
    parameters: Parameters,
    /// Names by the hash of method and path.
    named: Mutex<LruCache<u64, TypeName>>,
}

/// A request as the gate sees it.
#[derive(Clone, Debug)]
pub(crate) struct Classified {
    pub(crate) name: TypeName,
    /// Its path, if what else it says may tell it apart.
    pub(crate) parameters: Option<Arc<parameters::Path>>,
    /// The hash of its method and path.
    path: u64,
}

#[cfg(test)]
impl Classified {
    /// A request of this type, of some path.
    pub(crate) fn of(name: TypeName) -> Self {
        Self { name, parameters: None, path: 0 }
    }
}

impl Classifier {
    pub(crate) fn new(rules: Vec<TypeRule>, field: TypeField) -> Self {
        Self {
            words: RwLock::new(Words::new(rules, field)),
            routes: Routes::new(),
            parameters: Parameters::default(),
            named: Mutex::new(LruCache::new(NAMED_MAX)),
        }
    }

    /// Other rules, from now on. What was learned of paths stays; what the application has said, unless it
    /// is no longer asked.
    pub(crate) fn change(&self, rules: Vec<TypeRule>, field: TypeField) {
        *self.words.write() = Words::new(rules, field);
        if field == TypeField::Ignore {
            self.named.lock().clear();
        }
    }

    /// Knows the words of types that had these labels before.
    pub(crate) fn recall(&self, labels: &[Arc<str>]) {
        for label in labels {
            let path = self.parameters.recall(label, Instant::now());
            self.routes.recall(path.unwrap_or(label));
        }
    }

    /// Looks for parameters that tell requests apart, until the task is dropped.
    pub(crate) async fn look(&self, driver: &Driver) {
        loop {
            sleep(parameters::LOOK_EVERY).await;
            let (learned, labels) = driver.learned();
            let known: Vec<_> = learned.types.into_iter().zip(labels).collect();
            self.parameters.look(driver.name(), Instant::now(), &known);
        }
    }

    /// The type of a request of this method, whose path has this normal form (`path.rs`).
    pub(crate) fn classify(&self, method: &Method, path: &str) -> Classified {
        let hash = xxh3_64_with_seed(path.as_bytes(), xxh3_64(method.as_str().as_bytes()));
        if let Some(name) = self.named.lock().get(&hash) {
            return Classified { name: name.clone(), parameters: None, path: hash };
        }
        let words = self.words.read();
        if let Some((_, name)) = words.rules.iter().find(|(rule, _)| rule.fits(method, path)) {
            return Classified { name: name.clone(), parameters: None, path: hash };
        }
        let name = self.routes.find(method, path);
        Classified { parameters: self.parameters.of(&name), name, path: hash }
    }

    /// What the application has called it holds for the next one, and is nobody else's business.
    pub(crate) fn learn(&self, classified: &Classified, fields: &mut HeaderMap) {
        // A walk costs less than a search, which would be in vain for most.
        if !fields.keys().any(|name| name == TYPE) || self.words.read().field == TypeField::Ignore {
            return;
        }
        let said = fields.remove(TYPE);
        let Some(name) = said.as_ref().and_then(|name| name.to_str().ok()).filter(|name| is_name(name))
        else {
            return;
        };
        if classified.name.label.as_ref() != name {
            self.named.lock().put(classified.path, named(name));
        }
    }
}

/// Whether a name can be a label.
fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

impl TypeRule {
    pub(super) fn fits(&self, method: &Method, path: &str) -> bool {
        if self.method.as_deref().is_some_and(|wanted| wanted != method.as_str()) {
            return false;
        }
        fits_path(&self.path, path)
    }
}

/// Whether a path in its normal form has these segments: `*` is any one, `**` at the end any number.
pub(crate) fn fits_path(wanted: &[String], path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    for wanted in wanted {
        match (wanted.as_str(), segments.next()) {
            ("**", _) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(segment)) if wanted == segment => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

/// How long the client waits for the answer, if it says so.
pub(crate) fn time_out(fields: &HeaderMap) -> Option<Duration> {
    let text = |name: &HeaderName| {
        fields.get(name).map(HeaderValue::as_bytes).and_then(|value| std::str::from_utf8(value).ok())
    };
    let grpc = text(&GRPC_TIMEOUT).and_then(grpc_time_out);
    let seconds = text(&REQUEST_TIMEOUT).and_then(request_time_out);
    let millis = MILLISECONDS.iter().filter_map(text).filter_map(|text| text.trim().parse().ok());
    grpc.into_iter().chain(seconds).chain(millis.map(Duration::from_millis)).min()
}

/// A positive number of at most eight digits, and a unit.
fn grpc_time_out(text: &str) -> Option<Duration> {
    let (unit_at, unit) = text.char_indices().last()?;
    let digits = &text[..unit_at];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(count * 3_600),
        'M' => Duration::from_secs(count * 60),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

fn request_time_out(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.trim().parse::<f64>().ok()? * unit;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn a_deadline_is_read_in_every_form_and_nonsense_is_none() {
        let ms = Duration::from_millis;
        let cases = [
            ("grpc-timeout", "100m", Some(ms(100))),
            ("grpc-timeout", "2S", Some(ms(2_000))),
            ("grpc-timeout", "1H", Some(ms(3_600_000))),
            ("grpc-timeout", "123456789S", None),
            ("grpc-timeout", "S", None),
            ("grpc-timeout", "-1S", None),
            ("grpc-timeout", "5ß", None),
            ("x-request-timeout", "1.5", Some(ms(1_500))),
            ("x-request-timeout", "250ms", Some(ms(250))),
            ("x-request-timeout", "3 s", Some(ms(3_000))),
            ("x-request-timeout", "-3", None),
            ("x-request-timeout", "NaN", None),
            ("x-request-timeout", "1e400", None),
            ("x-client-timeout-ms", "40", Some(ms(40))),
            ("x-envoy-expected-rq-timeout-ms", "x", None),
        ];
        for (name, value, expected) in cases {
            assert_eq!(
                HeaderValue::from_bytes(value.as_bytes()).ok().and_then(|value| {
                    time_out(&HeaderMap::from_iter([(HeaderName::from_static(name), value)]))
                }),
                expected,
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn rules_come_before_templates_and_the_application_before_rules() {
        let rule = |method: Option<&str>, path: &[&str], name: &str| TypeRule {
            method: method.map(str::to_owned),
            path: path.iter().map(|&segment| segment.to_owned()).collect(),
            name: name.to_owned(),
            files: None,
        };
        let rules = vec![
            rule(Some("POST"), &["cart", "*"], "cart"),
            rule(None, &["static", "**"], "static"),
            rule(None, &[], "home"),
        ];
        let classifier = Classifier::new(rules.clone(), TypeField::Use);
        let label = |method: Method, path: &str| classifier.classify(&method, path).name.label.to_string();
        assert_eq!(label(Method::POST, "/cart/7"), "cart");
        assert_eq!(label(Method::GET, "/cart/7"), "GET /*/*");
        assert_eq!(label(Method::POST, "/cart/7/8"), "POST /*/*/*");
        assert_eq!(label(Method::GET, "/static/a/b"), "static");
        assert_eq!(label(Method::GET, "/"), "home");
        let asked = || classifier.classify(&Method::POST, "/cart/7");
        let mut said = fields("x-gatekeeper-type", "checkout");
        classifier.learn(&asked(), &mut said);
        assert!(said.is_empty(), "clients don't see it");
        assert_eq!(label(Method::POST, "/cart/7"), "checkout");
        assert_eq!(label(Method::POST, "/cart/8"), "cart");
        classifier.learn(&asked(), &mut fields("x-gatekeeper-type", &"x".repeat(65)));
        assert_eq!(label(Method::POST, "/cart/7"), "checkout");
        classifier.change(rules, TypeField::Ignore);
        assert_eq!(label(Method::POST, "/cart/7"), "cart");
        let mut said = fields("x-gatekeeper-type", "checkout");
        classifier.learn(&asked(), &mut said);
        assert_eq!((label(Method::POST, "/cart/7").as_str(), said.len()), ("cart", 1));
    }
}
