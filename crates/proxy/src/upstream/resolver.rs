//! The addresses of the server's name, followed as they change.
//!
//! The system doesn't tell how long an answer of its resolver holds, so it is asked again after a time of
//! our own. An answer is used for that long; if the resolver fails, the last answer goes on being used. An
//! address counts as gone when two answers in a row lacked it: one short answer is no fail-over.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::lookup_host;
use tokio::time::Instant;

/// The most addresses of one name that are used.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// The answer to a look-up that is under way.
pub type Answer = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Begins a look-up of a host's port.
type Ask = dyn Fn(&str, u16) -> Answer + Send + Sync;

/// What looks up the addresses of a host's port. The default is the system.
#[derive(Clone)]
pub struct Lookup {
    ask: Arc<Ask>,
    /// The name that was last asked for: the task that connects and the task that follows it know the same.
    latest: Arc<Mutex<Option<Arc<Resolver>>>>,
}

impl Lookup {
    /// Asks a function.
    pub fn new(ask: impl Fn(&str, u16) -> Answer + Send + Sync + 'static) -> Self {
        Self { ask: Arc::new(ask), latest: Arc::default() }
    }

    /// The resolver of a name; the same one for as long as it is the same name.
    pub(crate) fn resolver(&self, host: &str, port: u16, ttl: Duration) -> Arc<Resolver> {
        let mut latest = self.latest.lock();
        match &*latest {
            Some(known) if known.follows(host, port, ttl) => Arc::clone(known),
            _ => {
                let new = Arc::new(Resolver::new(host.to_owned(), port, self.clone(), ttl));
                *latest = Some(Arc::clone(&new));
                new
            }
        }
    }
}

impl Default for Lookup {
    fn default() -> Self {
        Self::new(|host, port| {
            let host = host.to_owned();
            Box::pin(async move { Ok(lookup_host((host, port)).await?.take(ADDRESSES_MAX).collect()) })
        })
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Lookup")
    }
}

/// Follows one name.
pub(crate) struct Resolver {
    host: String,
    port: u16,
    ask: Arc<Ask>,
    /// How long an answer is used; zero: once.
    ttl: Duration,
    known: Mutex<Known>,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Resolver").field("host", &self.host).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Known {
    newest: Vec<SocketAddr>,
    before: Vec<SocketAddr>,
    asked: Option<Instant>,
}

impl Resolver {
    /// Asks nobody yet.
    pub(crate) fn new(host: String, port: u16, lookup: Lookup, ttl: Duration) -> Self {
        Self { host, port, ask: lookup.ask, ttl, known: Mutex::default() }
    }

    /// Whether it is what a new one for these would be.
    pub(crate) fn follows(&self, host: &str, port: u16, ttl: Duration) -> bool {
        (self.host.as_str(), self.port, self.ttl) == (host, port, ttl)
    }

    /// The name.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// How often the name is to be looked up, if its answers can change at all and are to be followed.
    pub(crate) fn period(&self) -> Option<Duration> {
        (!self.ttl.is_zero() && self.host.parse::<std::net::IpAddr>().is_err()).then_some(self.ttl)
    }

    /// Where to connect now.
    ///
    /// # Errors
    /// The resolver's, if it has never answered; "not found" for a name without addresses.
    pub(crate) async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        {
            let known = self.known.lock();
            let is_fresh = known.asked.is_some_and(|asked| asked.elapsed() < self.ttl);
            if is_fresh && !known.newest.is_empty() {
                return Ok(known.newest.clone());
            }
        }
        match self.refresh().await {
            Ok(()) => Ok(self.known.lock().newest.clone()),
            Err(error) => {
                let known = self.known.lock();
                if known.newest.is_empty() { Err(error) } else { Ok(known.newest.clone()) }
            }
        }
    }

    /// Asks now.
    ///
    /// # Errors
    /// The resolver's, and "not found" for an empty answer; what was known before stays known.
    pub(crate) async fn refresh(&self) -> io::Result<()> {
        let mut answer = (self.ask)(&self.host, self.port).await?;
        if answer.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        answer.truncate(ADDRESSES_MAX);
        let mut known = self.known.lock();
        known.before = std::mem::replace(&mut known.newest, answer);
        known.asked = Some(Instant::now());
        Ok(())
    }

    /// Nobody was to be reached at what is known: the next to connect asks again.
    pub(crate) fn doubt(&self) {
        self.known.lock().asked = None;
    }

    /// The addresses that connections may keep: those of the last two answers.
    pub(crate) fn kept(&self) -> Vec<SocketAddr> {
        let known = self.known.lock();
        known.newest.iter().chain(&known.before).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 5432))
    }

    /// A resolver that gives these answers, one after the other, and then errs.
    fn answering(ttl: Duration, answers: &[&[u8]]) -> Resolver {
        let mut answers: Vec<Vec<SocketAddr>> =
            answers.iter().rev().map(|numbers| numbers.iter().copied().map(address).collect()).collect();
        answers.insert(0, Vec::new());
        let answers = Mutex::new(answers);
        let lookup = Lookup::new(move |host, port| {
            assert_eq!((host, port), ("db", 5432));
            let answer = answers.lock().pop().ok_or_else(|| io::Error::other("no resolver"));
            Box::pin(async move { answer })
        });
        Resolver::new("db".to_owned(), 5432, lookup, ttl)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_for_its_time_and_then_for_as_long_as_the_resolver_fails() {
        let ttl = Duration::from_secs(15);
        let resolver = answering(ttl, &[&[1], &[2]]);
        assert_eq!(resolver.period(), Some(ttl));
        assert_eq!(resolver.addresses().await.unwrap(), [address(1)]);
        assert_eq!(resolver.addresses().await.unwrap(), [address(1)]);
        tokio::time::advance(ttl).await;
        assert_eq!(resolver.addresses().await.unwrap(), [address(2)]);
        resolver.doubt();
        for _ in 0..3 {
            assert_eq!(resolver.addresses().await.unwrap(), [address(2)]);
            tokio::time::advance(ttl).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_gone_when_two_answers_lacked_it() {
        let resolver = answering(Duration::from_secs(15), &[&[1, 2], &[2], &[3]]);
        resolver.refresh().await.unwrap();
        resolver.refresh().await.unwrap();
        assert!(resolver.kept().contains(&address(1)));
        resolver.refresh().await.unwrap();
        assert!(!resolver.kept().contains(&address(1)) && resolver.kept().contains(&address(2)));
        assert!(resolver.refresh().await.is_err());
        assert!(resolver.kept().contains(&address(3)));
    }

    #[tokio::test]
    async fn a_name_that_never_had_an_address_is_an_error() {
        assert!(answering(Duration::ZERO, &[]).addresses().await.is_err());
    }

    #[test]
    fn an_ip_address_is_not_followed() {
        let of = |host: &str, ttl| Resolver::new(host.to_owned(), 1, Lookup::default(), ttl).period();
        assert_eq!(of("::1", Duration::from_secs(1)), None);
        assert_eq!(of("db", Duration::ZERO), None);
    }
}
