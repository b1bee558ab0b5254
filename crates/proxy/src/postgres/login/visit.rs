//! The login of a visitor of the console.
//!
//! The visitor proves his name as every client does: to the gate, where it authenticates clients; otherwise
//! to the server, over a relayed login to a database that it has, whose connection is closed at once. A
//! process of our own user, or of root, that comes by a Unix socket isn't asked. His rights are
//! looked up afterwards, so that a stranger doesn't learn which users are named.

use tokio::time::{Instant, timeout_at};
use wire::postgres::startup::parameter;

use super::super::Settings;
use super::super::auth::Method;
use super::super::console::Visitor;
use super::super::refusal::Refusal;
use super::handshake::Accepted;
use super::{End, Login};

impl Login<'_> {
    /// Finds out which user wants to visit, and whether he may.
    pub(super) async fn visit(
        &mut self,
        parameters: &[(String, String)],
        deadline: Instant,
    ) -> Result<Visitor, End> {
        let settings = self.shared.settings();
        let user = parameter(parameters, "user").unwrap_or_default().to_owned();
        if !self.client.is_of_our_user() {
            match settings.auth.settings.method {
                Method::Relay => self.prove_by_relay(&settings, &user, deadline).await?,
                _ => {
                    let proof = Box::pin(self.prove(&settings.auth, &user));
                    timeout_at(deadline, proof).await.map_err(|_| self.late(&settings))??;
                }
            }
        }
        let role = settings.console.role(&user).ok_or(Refusal::ConsoleForbidden)?;
        let place = self.shared.visitors.try_take().ok_or(Refusal::ConsoleFull)?;
        let application = parameter(parameters, "application_name").unwrap_or_default().to_owned();
        Ok(Visitor { user, application, role, place })
    }

    async fn prove_by_relay(
        &mut self,
        settings: &Settings,
        user: &str,
        deadline: Instant,
    ) -> Result<(), End> {
        let turn = timeout_at(deadline, self.wait_for_turn()).await;
        let _login_place = turn.map_err(|_| self.late(settings))??;
        let identity = [
            ("user", user),
            ("database", settings.console.database.as_str()),
            ("application_name", "gatekeeper console"),
        ];
        let identity = identity.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let accepted = timeout_at(deadline, self.relay(settings, &identity)).await;
        let Accepted { server, .. } = accepted.map_err(|_| self.late(settings))??;
        server.close();
        Ok(())
    }
}
