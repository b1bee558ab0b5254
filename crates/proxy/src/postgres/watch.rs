//! Whether the server is there while nobody logs in.
//!
//! A connection that stands and an answer to a statement show that it is there. Where neither does, the
//! gate connects and closes the connection, which leaves no line in the server's log. A server that was
//! found gone has to speak: until it lets a login begin, it may be starting or recovering.

use tokio::time::{sleep, timeout};

use super::login::first_word;
use super::{Settings, Shared};
use crate::upstream::health::{Condition, LOOK_EVERY, Lack};

/// Never returns.
pub(super) async fn watch(shared: &Shared) {
    let mut succeeded = 0;
    loop {
        let before = std::mem::replace(&mut succeeded, shared.driver.totals().counts.succeeded);
        let settings = shared.settings();
        let has_idle = shared.pools.snapshot().iter().any(|pool| pool.idle > 0);
        match settings.health.condition() {
            Condition::Down => ask(&settings).await,
            Condition::Up if has_idle || succeeded > before => {}
            Condition::Up | Condition::Unknown => knock(shared, &settings).await,
        }
        drop(settings);
        sleep(LOOK_EVERY).await;
    }
}

/// Connects, and closes the connection.
async fn knock(shared: &Shared, settings: &Settings) {
    match shared.endpoint().knock().await {
        Ok(()) => settings.health.reached(settings.named()),
        Err(error) => settings.health.failed(settings.named(), Lack::Connection, &error),
    }
}

/// Lets a login of a made-up user begin; the health hears of its first answer by itself.
async fn ask(settings: &Settings) {
    if timeout(settings.login_timeout, first_word(settings)).await.is_err() {
        settings.health.failed(settings.named(), Lack::Answer, &"it answers no login in time");
    }
}
