//! How a client proves its password: by the plug-in that it began with, or by one other.
//!
//! ```text
//! the first proof ─► right ─► in
//!       └─► another plug-in, or the same with another scramble ─► right ─► in
//!                   └─► caching_sha2_password, of which only a salted hash is known:
//!                       the password itself, within TLS or encrypted by RSA ─► right ─► in
//! ```
//!
//! Clients take one change of plug-ins, not two. A client that began with another plug-in than the greeting's
//! has no scramble for it and sends an empty proof. An unknown user is asked like some known user.
//!
//! A client that leaves behind a wrong proof has failed to log in: it may have guessed, and seen that.
//!
//! A password that was seen itself is kept in memory, so that the next proof is checked the fast way. What is
//! kept belongs to one salted hash: with another hash of the user's it is worth nothing.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use wire::mysql::authentication::{MAX_STEP, write_more, write_switch};
use wire::mysql::codec::Sequence;
use wire::mysql::salted::Salted;
use wire::mysql::scramble::{SCRAMBLE_LEN, caching_sha2, native};
use zeroize::Zeroizing;

use super::Shared;
use super::channel::{Channel, Lost};
use super::reject::Refusal;
use super::rsa::Pair;
use super::users::{Credential, Secret};
use crate::sql::logins::{Caller, Cause};
use crate::stream::{Peer, Stream};

/// The most passwords that are kept.
const TAKEN_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it isn't 0");

/// A password.
type Password = Zeroizing<Vec<u8>>;

/// What the gate needs for passwords that come themselves.
pub(super) struct Passwords {
    /// Made at the first need.
    pair: OnceCell<Arc<Pair>>,
    /// Clients that nobody knows have the gate decrypt and hash. That is done for one at a time.
    turn: Semaphore,
    taken: Mutex<LruCache<Salted, Password>>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { pair: OnceCell::new(), turn: Semaphore::new(1), taken: Mutex::new(LruCache::new(TAKEN_MAX)) }
    }
}

impl Passwords {
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Lost> {
        self.turn.acquire().await.map_err(|_| Lost::Closed)
    }

    async fn pair(&self) -> Result<Arc<Pair>, Lost> {
        let generate = || async {
            let none = || Lost::Io(std::io::Error::other("no RSA keys can be made"));
            aside(&self.turn().await?, Pair::generate).await?.map(Arc::new).ok_or_else(none)
        };
        self.pair.get_or_try_init(generate).await.cloned()
    }

    fn known(&self, salted: &Salted) -> Option<Password> {
        self.taken.lock().get(salted).cloned()
    }

    fn keep(&self, salted: &Salted, password: &Password) {
        self.taken.lock().put(salted.clone(), password.clone());
    }
}

/// Does what takes a processor for long, besides the executor's threads and for one client at a time.
async fn aside<T: Send + 'static>(
    _turn: &SemaphorePermit<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Lost> {
    spawn_blocking(work).await.map_err(|error| Lost::Io(std::io::Error::other(error)))
}

/// How a proof ended.
pub(super) struct Proved {
    /// What the server is shown, and the number of the login's last answer.
    pub(super) credential: Option<(Credential, Sequence)>,
    /// The number of a refusal.
    pub(super) next: Sequence,
}

/// A plug-in of a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plugin {
    Native,
    Sha2,
    Another,
}

impl Plugin {
    fn named(name: &[u8]) -> Self {
        match name {
            [] | b"mysql_native_password" => Self::Native,
            b"caching_sha2_password" => Self::Sha2,
            _ => Self::Another,
        }
    }
}

/// What comes behind a first proof that isn't right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    Nothing,
    /// The password itself, for the scramble that was there.
    Password,
    Switch(Plugin),
}

/// What a client is asked for next: what is known of its password says so.
fn second(secret: &Secret, plugin: Plugin, is_empty: bool) -> Second {
    match (secret, plugin) {
        (Secret::Salted(_), Plugin::Sha2) if !is_empty => Second::Password,
        (Secret::Salted(_), _) => Second::Switch(Plugin::Sha2),
        (Secret::Native(_), Plugin::Sha2 | Plugin::Another) => Second::Switch(Plugin::Native),
        (_, Plugin::Another) => Second::Switch(Plugin::Native),
        _ if is_empty => Second::Switch(plugin),
        _ => Second::Nothing,
    }
}

/// 20 bytes without NUL.
pub(super) fn scramble() -> Vec<u8> {
    (0..SCRAMBLE_LEN).map(|_| rand::random_range(1..=127)).collect()
}

/// Whether a client has given a proof that could be a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Nothing,
    Proof,
}

impl Given {
    const fn of(proof: &[u8]) -> Self {
        if matches!(proof, [] | [0]) { Self::Nothing } else { Self::Proof }
    }
}

/// A client's proof until the gate has decided. Where the client leaves or is late, that is a failed login.
struct Undecided<'a> {
    shared: &'a Shared,
    peer: Peer,
    user: &'a [u8],
    given: Given,
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        if self.given == Given::Nothing {
            return;
        }
        self.shared.note_failure(self.peer);
        self.shared.login_counts.refuse(Cause::Denied);
        let caller = Caller { user: Some(String::from_utf8_lossy(self.user).into_owned()), database: None };
        let why = "the client left behind a proof that wasn't right";
        self.shared.tell_failed((&caller, self.peer), &Refusal::denied(self.user), &why);
    }
}

/// Checks a client's proof, and asks for another where that can be of use. `secret`: what is known of the
/// user, or a made-up one. The caller tells of a proof that is wrong in the end.
pub(super) async fn authenticate(
    (shared, peer): (&Shared, Peer),
    (user, secret): (&[u8], &Arc<Secret>),
    client: &mut Channel,
    asked: (&[u8], &[u8]),
    from: (&[u8], Sequence),
) -> Result<Proved, Lost> {
    let mut undecided = Undecided { shared, peer, user, given: Given::of(asked.1) };
    let proved = undecided.prove(secret, client, asked, from).await?;
    undecided.given = Given::Nothing;
    Ok(proved)
}

impl Undecided<'_> {
    async fn prove(
        &mut self,
        secret: &Arc<Secret>,
        client: &mut Channel,
        (plugin, proof): (&[u8], &[u8]),
        (first_scramble, mut next): (&[u8], Sequence),
    ) -> Result<Proved, Lost> {
        let passwords = &self.shared.passwords;
        let (mut plugin, mut scramble) = (Plugin::named(plugin), first_scramble.to_vec());
        let mut found = check(passwords, secret, (plugin, &scramble), proof);
        let mut asks_password = false;
        if found.is_none() {
            match second(secret, plugin, self.given == Given::Nothing) {
                Second::Nothing => return Ok(Proved { credential: None, next }),
                Second::Password => asks_password = true,
                Second::Switch(to) => {
                    (plugin, scramble) = (to, self::scramble());
                    let name = if to == Plugin::Sha2 { caching_sha2::NAME } else { native::NAME };
                    next = write_switch(&mut client.output, next, name.as_bytes(), &scramble);
                    client.flush().await?;
                    let message = client.client_message(MAX_STEP, next).await?;
                    next = message.next;
                    if Given::of(&message.payload) == Given::Proof {
                        self.given = Given::Proof;
                    }
                    found = check(passwords, secret, (to, &scramble), &message.payload);
                    asks_password = found.is_none() && to == Plugin::Sha2;
                }
            }
        }
        if asks_password && matches!(**secret, Secret::Salted(_)) {
            let (password, next) = full(passwords, client, (&scramble, next)).await?;
            let credential = self.password_of(secret, password).await?;
            return Ok(Proved { credential: credential.map(|found| (found, next)), next });
        }
        let Some(credential) = found else { return Ok(Proved { credential: None, next }) };
        // Without a password there is nothing to say of the proof.
        if plugin == Plugin::Sha2 && !matches!(credential, Credential::Nothing) {
            next = write_more(&mut client.output, next, &[caching_sha2::FAST]);
        }
        Ok(Proved { credential: Some((credential, next)), next })
    }

    /// What the server is shown, if the password is the user's.
    async fn password_of(&self, secret: &Arc<Secret>, sent: Sent) -> Result<Option<Credential>, Lost> {
        let passwords = &self.shared.passwords;
        let turn = passwords.turn().await?;
        // Others of the address may have failed while this client waited for its turn.
        if !self.shared.may_try(self.peer) {
            return Ok(None);
        }
        let secret = Arc::clone(secret);
        let work = move || {
            let password = match sent {
                Sent::Clear(password) => password,
                Sent::Encrypted { pair, sent, scramble } => pair.decrypt(&sent, &scramble),
            };
            let Secret::Salted(salted) = &*secret else { return None };
            password.filter(|password| salted.is_of(password)).map(|password| (salted.clone(), password))
        };
        let Some((salted, password)) = aside(&turn, work).await? else { return Ok(None) };
        passwords.keep(&salted, &password);
        Ok(Some(Credential::Password(password)))
    }
}

fn check(
    passwords: &Passwords,
    secret: &Secret,
    (plugin, scramble): (Plugin, &[u8]),
    proof: &[u8],
) -> Option<Credential> {
    let known = match secret {
        Secret::Salted(salted) => passwords.known(salted),
        _ => None,
    };
    let known = known.map(Secret::Password);
    let secret = known.as_ref().unwrap_or(secret);
    match plugin {
        Plugin::Native => secret.check_native(scramble, proof),
        Plugin::Sha2 => secret.check_sha2(scramble, proof),
        Plugin::Another => None,
    }
}

/// What a client has sent for its password.
enum Sent {
    Clear(Option<Password>),
    Encrypted { pair: Arc<Pair>, sent: Password, scramble: Vec<u8> },
}

/// Asks for the password itself. Returns the number of the login's last answer, too.
async fn full(
    passwords: &Passwords,
    client: &mut Channel,
    (scramble, next): (&[u8], Sequence),
) -> Result<(Sent, Sequence), Lost> {
    let due = write_more(&mut client.output, next, &[caching_sha2::FULL]);
    client.flush().await?;
    let mut message = client.client_message(MAX_STEP, due).await?;
    if !matches!(client.stream, Stream::Tcp(_)) {
        let clear = Zeroizing::new(std::mem::take(&mut message.payload).to_vec());
        let password = caching_sha2::from_clear(&clear).map(|password| Zeroizing::new(password.to_vec()));
        return Ok((Sent::Clear(password), message.next));
    }
    let pair = passwords.pair().await?;
    if message.payload[..] == [caching_sha2::ASK_FOR_KEY] {
        let due = write_more(&mut client.output, message.next, pair.public().as_bytes());
        client.flush().await?;
        message = client.client_message(MAX_STEP, due).await?;
    }
    let sent = Zeroizing::new(message.payload.to_vec());
    Ok((Sent::Encrypted { pair, sent, scramble: scramble.to_vec() }, message.next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_asked_for_what_its_secret_can_be_checked_with() {
        let salted = Secret::Salted(Salted::new(b"secret", 1, [7; 20]));
        let (native, plain) = (Secret::Native([7; 20]), Secret::Password(b"secret".to_vec().into()));
        let (sha2, other) = (Plugin::Sha2, Plugin::Another);
        assert_eq!(second(&salted, sha2, false), Second::Password);
        assert_eq!(second(&salted, sha2, true), Second::Switch(sha2));
        assert_eq!(second(&salted, Plugin::Native, false), Second::Switch(sha2));
        assert_eq!(second(&native, sha2, false), Second::Switch(Plugin::Native));
        assert_eq!(second(&native, Plugin::Native, true), Second::Switch(Plugin::Native));
        assert_eq!(second(&native, Plugin::Native, false), Second::Nothing);
        assert_eq!(second(&plain, sha2, true), Second::Switch(sha2));
        assert_eq!(second(&plain, sha2, false), Second::Nothing);
        assert_eq!(second(&plain, other, false), Second::Switch(Plugin::Native));
        assert_eq!(second(&Secret::Nothing, other, true), Second::Switch(Plugin::Native));
    }

    #[test]
    fn a_password_that_is_kept_belongs_to_one_hash() {
        let passwords = Passwords::default();
        let [of_then, of_now] = [[7; 20], [8; 20]].map(|salt| Salted::new(b"secret", 1, salt));
        passwords.keep(&of_then, &b"secret".to_vec().into());
        assert!(passwords.known(&of_then).is_some() && passwords.known(&of_now).is_none());
        let proof = caching_sha2::prove(&caching_sha2::key(b"secret"), &[7; 20]);
        let found = |salted| check(&passwords, &Secret::Salted(salted), (Plugin::Sha2, &[7; 20]), &proof);
        assert!(matches!(found(of_then), Some(Credential::Password(_))));
        assert!(found(of_now).is_none());
    }
}
