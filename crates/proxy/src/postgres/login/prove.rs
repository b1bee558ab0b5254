//! The gate asks the client to prove who it is: SCRAM-SHA-256, md5, or nothing.
//!
//! Whether the user exists, has a password, or one that is still valid makes no difference to what the
//! client sees: the exchange runs to its end with a made-up verifier, and fails as with a wrong password.
//! The reason is in the log.
//!
//! No place among the logins is held meanwhile, since nothing is asked of the server (but a row of
//! `auth_query`): clients that never answer hold up nobody.

use std::sync::Arc;

use bytes::BytesMut;
use wire::postgres::authentication::{
    parse_password, parse_sasl_initial, write_md5_challenge, write_sasl, write_sasl_continue,
    write_sasl_final,
};

use super::super::auth::scram::{ExchangeError, ITERATIONS, Verification, Verifier, mechanisms, nonce};
use super::super::auth::secret::Secret;
use super::super::auth::users::User;
use super::super::auth::{Authentication, Challenge, Credentials, Doomed, Method, mock_salt};
use super::super::refusal::Refusal;
use super::open::derive;
use super::{End, Login};
use crate::stream::Encrypted;
use crate::tls;

impl Login<'_> {
    /// Authenticates the client: what the gate may log in with in its name. AuthenticationOk isn't sent yet.
    pub(super) async fn prove(&mut self, auth: &Arc<Authentication>, user: &str) -> Result<Credentials, End> {
        let known = match auth.user(user) {
            Some(known) => Some(Arc::clone(known)),
            None => self.shared.auth_query.find(self.shared, auth, user).await?,
        };
        if auth.settings.method == Method::Trust {
            return known.map(credentials).ok_or_else(|| self.denied(user, &Doomed::Unknown));
        }
        let (challenge, possible) = auth.challenge(known.as_deref());
        match (challenge, known) {
            (Challenge::Md5, known) => {
                self.prove_by_md5(user, known.filter(|_| possible.is_ok()), possible).await
            }
            (Challenge::Scram, Some(known)) if possible.is_ok() => {
                let keys = match &known.secret {
                    Some(Secret::Scram(verifier)) => self.prove_by_scram(user, verifier, Ok(())).await?,
                    _ => {
                        let derived = derive(&known, &mock_salt(user, &self.shared.nobody), ITERATIONS).await;
                        let keys = derived.ok_or_else(|| self.denied(user, &Doomed::NoSecret))?;
                        // A gate that knows the password itself needs no keys of it.
                        self.prove_by_scram(user, &keys.verifier(), Ok(())).await?;
                        None
                    }
                };
                Ok(keys.unwrap_or_else(|| credentials(known)))
            }
            (Challenge::Scram, _) => {
                self.prove_by_scram(user, &auth.mock_verifier(user, &self.shared.nobody), possible).await?;
                Err(self.denied(user, &Doomed::Unknown))
            }
        }
    }

    async fn prove_by_md5(
        &mut self,
        user: &str,
        known: Option<Arc<User>>,
        possible: Result<(), Doomed>,
    ) -> Result<Credentials, End> {
        use super::super::auth::secret::Md5Hash;
        let salt = rand::random();
        self.say(|out| write_md5_challenge(out, salt)).await?;
        let message = self.password_message().await?;
        let answer = parse_password(message.body()).map_err(|_| Refusal::Password(user.to_owned()))?;
        let accepts = match known.as_deref().and_then(|known| known.secret.as_ref()) {
            Some(Secret::Md5(hash)) => hash.accepts(salt, answer),
            Some(Secret::Plain(password)) => Md5Hash::new(user, password.as_str()).accepts(salt, answer),
            // This takes as much work as for users with a secret for md5.
            Some(Secret::Scram(_)) | None => {
                Md5Hash::new(user, "").accepts(salt, answer);
                false
            }
        };
        match (possible, known) {
            (Err(doomed), _) => Err(self.denied(user, &doomed)),
            (Ok(()), Some(known)) if accepts => Ok(credentials(known)),
            _ => Err(self.denied(user, &ExchangeError::Proof)),
        }
    }

    /// The SCRAM exchange. What the proof gave away is returned where the verifier was somebody's.
    async fn prove_by_scram(
        &mut self,
        user: &str,
        verifier: &Verifier,
        possible: Result<(), Doomed>,
    ) -> Result<Option<Credentials>, End> {
        // With the data of the client's TLS channel, -PLUS is offered.
        let channel = self.client.encryption().and_then(Encrypted::own_certificate).and_then(tls::end_point);
        let channel = channel.as_deref();
        self.say(|out| write_sasl(out, mechanisms(channel))).await?;
        let message = self.password_message().await?;
        let initial = parse_sasl_initial(message.body()).map_err(|_| Refusal::NoAnswer(b'p'))?;
        let data = initial.data.unwrap_or_default();
        let begun = Verification::begin(verifier, channel, initial.mechanism, data, &nonce());
        let verification = begun.map_err(Refusal::Sasl)?;
        self.say(|out| write_sasl_continue(out, verification.server_first.as_bytes())).await?;
        let message = self.password_message().await?;
        let (keys, last) = match (verification.finish(message.body()), possible) {
            (Err(ExchangeError::Proof), Err(doomed)) | (Ok(_), Err(doomed)) => {
                return Err(self.denied(user, &doomed));
            }
            (Err(error @ ExchangeError::Proof), Ok(())) => return Err(self.denied(user, &error)),
            (Err(error), _) => return Err(Refusal::Sasl(error).into()),
            (Ok(finished), Ok(())) => finished,
        };
        self.say(|out| write_sasl_final(out, last.as_bytes())).await?;
        Ok(Some(Credentials::Keys(Arc::new(keys))))
    }

    /// Refuses a login with one answer for all reasons; the reason goes to the log.
    fn denied(&mut self, user: &str, why: &dyn std::fmt::Display) -> End {
        self.why = Some(why.to_string());
        Refusal::Password(user.to_owned()).into()
    }

    async fn say(&mut self, write: impl FnOnce(&mut BytesMut)) -> Result<(), End> {
        let mut out = BytesMut::with_capacity(256);
        write(&mut out);
        self.send(&out).await
    }
}

fn credentials(known: Arc<User>) -> Credentials {
    if known.secret.is_some() { Credentials::Known(known) } else { Credentials::Nothing }
}
