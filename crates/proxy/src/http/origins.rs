//! Whether a script of another site may read that it was refused.
//!
//! A browser hides a response from a script of another origin unless its fields allow that origin (CORS,
//! fetch.spec.whatwg.org). The script then sees no status and no `Retry-After`, only that its request
//! failed, and most scripts ask again at once. What is allowed is the service's to say. So the gate allows
//! of a refusal what the service's last answer of the same kind allowed: one to the same origin, of the
//! same host, in the same row of request types.
//!
//! An error of the service that allows nothing says nothing: many services leave the fields out of their
//! errors.
//!
//! **Bounds.** The last [`KNOWN_MAX`] kinds are known, in a few words each. A preflight that is refused
//! fails in the browser in any case.

use std::num::NonZeroUsize;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, StatusCode};
use lru::LruCache;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::classify::Classified;

/// Kinds of answers that are known.
const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// What a script sees of a refusal beside its status and its body.
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after, x-gatekeeper");

/// What the service has allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    /// Any origin, without credentials.
    Any,
    /// This origin, without credentials.
    Plain,
    /// This origin, with credentials.
    WithCredentials,
}

/// A request with an origin.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    origin: HeaderValue,
    /// The hash of origin, host and row.
    kind: u64,
}

impl Asker {
    /// `None`: the request has no origin.
    pub(crate) fn of<B>(request: &Request<B>, classified: &Classified) -> Option<Self> {
        let origin = request.headers().get(header::ORIGIN)?.clone();
        let host = match request.uri().authority() {
            Some(authority) => authority.as_str().as_bytes(),
            None => request.headers().get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes),
        };
        let kind = xxh3_64_with_seed(host, classified.name.row.0);
        Some(Self { kind: xxh3_64_with_seed(origin.as_bytes(), kind), origin })
    }
}

/// What is known of one gate's service.
#[derive(Debug)]
pub(crate) struct Origins(Mutex<LruCache<u64, Allowed>>);

impl Origins {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(KNOWN_MAX)))
    }

    /// The service has answered.
    pub(crate) fn learn(&self, asker: &Asker, status: StatusCode, fields: &HeaderMap) {
        let said = fields.get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        let has_credentials = || {
            let credentials = fields.get(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
            credentials.is_some_and(|said| said == "true")
        };
        let allowed = match said {
            Some(any) if any == "*" => Some(Allowed::Any),
            Some(origin) if *origin == asker.origin && has_credentials() => Some(Allowed::WithCredentials),
            Some(origin) if *origin == asker.origin => Some(Allowed::Plain),
            _ => None,
        };
        let mut known = self.0.lock();
        match allowed {
            Some(allowed) => _ = known.put(asker.kind, allowed),
            None if status.is_server_error() => {}
            None => _ = known.pop(&asker.kind),
        }
    }

    /// The gate answers in the service's place.
    pub(crate) fn allow(&self, asker: &Asker, fields: &mut HeaderMap) {
        let Some(allowed) = self.0.lock().get(&asker.kind).copied() else { return };
        if allowed == Allowed::Any {
            fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        } else {
            fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, asker.origin.clone());
            fields.insert(header::VARY, HeaderValue::from_static("origin"));
        }
        if allowed == Allowed::WithCredentials {
            fields.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        fields.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::key::named;

    fn asker(host: &str, origin: &str, row: &str) -> Asker {
        let request = Request::builder().header("host", host).header("origin", origin).body(()).unwrap();
        Asker::of(&request, &Classified::of(named(row))).unwrap()
    }

    fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |&(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value));
        fields.iter().map(field).collect()
    }

    fn allowed(origins: &Origins, asker: &Asker) -> HeaderMap {
        let mut fields = HeaderMap::new();
        origins.allow(asker, &mut fields);
        fields
    }

    #[test]
    fn a_refusal_allows_what_the_last_answer_of_its_kind_allowed() {
        let origins = Origins::new();
        let shop = asker("api.example", "https://shop.example", "GET /cart");
        assert!(allowed(&origins, &shop).is_empty(), "nobody has said so");
        let said = [
            ("access-control-allow-origin", "https://shop.example"),
            ("access-control-allow-credentials", "true"),
        ];
        origins.learn(&shop, StatusCode::OK, &fields(&said));
        let heard = allowed(&origins, &shop);
        assert_eq!(heard["access-control-allow-origin"], "https://shop.example");
        assert!(heard["access-control-allow-credentials"] == "true" && heard["vary"] == "origin");
        assert_eq!(heard["access-control-expose-headers"], EXPOSED);
        for (host, origin, row) in [
            ("api.example", "https://evil.example", "GET /cart"),
            ("other.example", "https://shop.example", "GET /cart"),
            ("api.example", "https://shop.example", "GET /admin"),
        ] {
            assert!(allowed(&origins, &asker(host, origin, row)).is_empty(), "{host} {origin} {row}");
        }

        origins.learn(&shop, StatusCode::BAD_GATEWAY, &HeaderMap::new());
        assert_eq!(allowed(&origins, &shop), heard, "an error says nothing of it");
        origins.learn(&shop, StatusCode::OK, &fields(&[("access-control-allow-origin", "*")]));
        let any = allowed(&origins, &shop);
        assert_eq!((any.len(), &any["access-control-allow-origin"]), (2, &HeaderValue::from_static("*")));
        origins.learn(&shop, StatusCode::OK, &fields(&[said[0]]));
        assert!(!allowed(&origins, &shop).contains_key("access-control-allow-credentials"));
        let other = fields(&[("access-control-allow-origin", "https://evil.example")]);
        origins.learn(&shop, StatusCode::OK, &other);
        assert!(allowed(&origins, &shop).is_empty(), "it was taken back");
    }

    #[test]
    fn so_many_kinds_are_known_and_no_more() {
        let origins = Origins::new();
        let any = fields(&[("access-control-allow-origin", "*")]);
        for number in 0..=KNOWN_MAX.get() {
            let asker = asker("api.example", &format!("https://{number}.example"), "GET /");
            origins.learn(&asker, StatusCode::OK, &any);
        }
        assert_eq!(origins.0.lock().len(), KNOWN_MAX.get());
        assert!(allowed(&origins, &asker("api.example", "https://0.example", "GET /")).is_empty());
    }
}
