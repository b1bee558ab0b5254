//! What stands before the server: nothing, PgBouncer, pgpool-II, a gate. Started for each cell anew, so that
//! cells don't depend on one another: a gate knows nothing when its warm-up begins.

use testbed::database::DatabaseServer;
use testbed::pgbouncer::{PgBouncer, Prepared};
use testbed::pgpool::PgPool;
use testbed::postgres::PrivateServer;

use super::plan::{Connect, OPEN_DIRECT, OPEN_PROXIED, POOL, Plan};
use crate::Error;
use crate::gatekeeper::Gatekeeper;
use crate::load::Target;

/// Clients that PgBouncer and pgpool-II have room for beside the experiment's.
const ROOM: u32 = 100;
/// A gate that works as a plain pool does.
const PLAIN: [(&str, &str); 3] =
    [("order", "\"fifo\""), ("long_limit", "\"none\""), ("capacity", "\"none\"")];

/// The gate of a variant before a site on 127.0.0.1:`site`; none if browsers go to the site itself. Blocks.
pub(super) fn before_site(
    plan: &Plan,
    variant: &str,
    best: Option<u32>,
    site: u16,
) -> Result<Option<Gatekeeper>, Error> {
    match way(plan, variant, best)? {
        Way::Direct => Ok(None),
        Way::PgBouncer { .. } | Way::PgPool { .. } => {
            Err(Error::Experiment(format!("{variant} stands before a database, not before a site")))
        }
        Way::Gate { keys } => {
            let keys: Vec<(&str, &str)> =
                keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            Gatekeeper::start_http(site, &keys, None).map(Some)
        }
    }
}

/// What a variant is.
#[derive(Clone, Debug, PartialEq)]
enum Way {
    Direct,
    PgBouncer { pool: u32 },
    PgPool { processes: u32 },
    Gate { keys: Vec<(String, String)> },
}

/// The process in between, if there is one. Dropping it ends it.
enum Proxy {
    PgBouncer(PgBouncer),
    PgPool(PgPool),
    Gatekeeper(Gatekeeper),
}

/// A way to the server that is open.
pub(super) struct Control {
    proxy: Option<Proxy>,
    /// Sessions at once, where each client of the proxy has one for as long as it stays connected.
    pub(super) sessions: Option<u32>,
    /// Whom clients connect to,
    pub(super) target: Target,
    /// on this port of 127.0.0.1.
    pub(super) port: u16,
}

impl Control {
    /// Opens a variant's way for so many clients. `best` is the pool of a variant that has the best. Blocks.
    pub(super) fn open(
        plan: &Plan,
        variant: &str,
        best: Option<u32>,
        clients: usize,
        server: &DatabaseServer,
    ) -> Result<Self, Error> {
        let room = u32::try_from(clients).unwrap_or(u32::MAX).saturating_add(ROOM);
        let mut sessions = None;
        let proxy = match way(plan, variant, best)? {
            Way::Direct => None,
            Way::PgBouncer { pool } => Some(Proxy::PgBouncer(PgBouncer::start(
                postgres(variant, server)?,
                pool,
                room,
                Prepared::Followed,
            )?)),
            Way::PgPool { processes } => {
                sessions = Some(processes);
                Some(Proxy::PgPool(PgPool::start(postgres(variant, server)?, processes, room)?))
            }
            Way::Gate { keys } => {
                Some(Proxy::Gatekeeper(Gatekeeper::start_before(&server.upstream(), &keys)?))
            }
        };
        let port = match &proxy {
            None => server.port(),
            Some(Proxy::PgBouncer(pgbouncer)) => pgbouncer.port(),
            Some(Proxy::PgPool(pgpool)) => pgpool.port(),
            Some(Proxy::Gatekeeper(gatekeeper)) => gatekeeper.port(),
        };
        let target = Target::parse(&server.url_through(port))?;
        Ok(Self { proxy, sessions, target, port })
    }

    /// The process in between.
    pub(super) fn pid(&self) -> Option<u32> {
        self.proxy.as_ref().map(|proxy| match proxy {
            Proxy::PgBouncer(pgbouncer) => pgbouncer.pid(),
            Proxy::PgPool(pgpool) => pgpool.pid(),
            Proxy::Gatekeeper(gatekeeper) => gatekeeper.pid(),
        })
    }

    /// Where a gate tells what it has found.
    pub(super) fn admin_port(&self) -> Option<u16> {
        match &self.proxy {
            Some(Proxy::Gatekeeper(gatekeeper)) => Some(gatekeeper.admin_port()),
            _ => None,
        }
    }

    /// Whether a client's prepared statements work through it.
    pub(super) fn follows_prepared(&self) -> bool {
        match &self.proxy {
            Some(Proxy::PgBouncer(pgbouncer)) => pgbouncer.prepares(),
            _ => true,
        }
    }

    /// When clients connect: as the plan says, but for each request where a client that stays
    /// connected would keep all others out.
    pub(super) fn connect(&self, planned: Connect) -> Connect {
        if self.sessions.is_some() { Connect::ForEachRequest } else { planned }
    }

    /// Connections of an application in an open loop.
    pub(super) fn open_connections(&self) -> usize {
        if self.proxy.is_some() { OPEN_PROXIED } else { OPEN_DIRECT }
    }

    /// What the gate said of a key that has no effect.
    pub(super) fn ineffective(&self) -> Option<String> {
        match &self.proxy {
            Some(Proxy::Gatekeeper(gatekeeper)) => gatekeeper.ineffective(),
            _ => None,
        }
    }

    /// What the gate wrote last, for an error.
    pub(super) fn log_tail(&self) -> String {
        match &self.proxy {
            Some(Proxy::Gatekeeper(gatekeeper)) => gatekeeper.log_tail(),
            _ => String::new(),
        }
    }
}

/// The server of a variant that speaks to PostgreSQL only.
fn postgres<'a>(variant: &str, server: &'a DatabaseServer) -> Result<&'a PrivateServer, Error> {
    match server {
        DatabaseServer::Postgres(server) => Ok(server),
        DatabaseServer::Mariadb(_) => {
            Err(Error::Experiment(format!("{variant} stands before PostgreSQL, not before MariaDB")))
        }
    }
}

/// Whether two variants are the same but for their names.
pub(super) fn are_alike(plan: &Plan, one: &str, other: &str, best: Option<u32>) -> bool {
    let ways = [one, other].map(|variant| way(plan, variant, best).ok());
    ways[0].is_some() && ways[0] == ways[1]
}

fn way(plan: &Plan, variant: &str, best: Option<u32>) -> Result<Way, Error> {
    let own =
        |keys: &[(&str, &str)]| keys.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    let found =
        || best.ok_or_else(|| Error::Experiment(format!("{variant}: its best pool wasn't looked for")));
    Ok(match variant {
        "direct" => Way::Direct,
        "pgbouncer-same-pool" => Way::PgBouncer { pool: POOL },
        "pgbouncer-best-pool" => Way::PgBouncer { pool: found()? },
        "pgpool-same-pool" => Way::PgPool { processes: POOL },
        "pgpool-best-pool" => Way::PgPool { processes: found()? },
        "gate-fifo" => Way::Gate { keys: own(&PLAIN) },
        "gate" => Way::Gate { keys: Vec::new() },
        "gate-calibrated" => {
            let connections = found()?.to_string();
            Way::Gate { keys: own(&[("connections", connections.as_str()), ("capacity", "\"none\"")]) }
        }
        _ => {
            let keys = plan
                .variant
                .get(variant)
                .ok_or_else(|| Error::Experiment(format!("`{variant}` is no variant of {}", plan.name)))?;
            Way::Gate { keys: keys.iter().map(|(key, value)| (key.clone(), value.to_string())).collect() }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::plan;

    #[test]
    fn who_has_a_session_for_each_client_is_connected_to_for_each_request() {
        let target = Target::parse("host=127.0.0.1 port=5432 user=a").unwrap();
        let control = |sessions| Control { proxy: None, sessions, target: target.clone(), port: 5432 };
        assert_eq!(control(Some(4)).connect(Connect::Once), Connect::ForEachRequest);
        assert_eq!(control(None).connect(Connect::Once), Connect::Once);
    }

    #[test]
    fn every_variant_has_its_keys() {
        let plan = plan();
        assert_eq!(way(&plan, "direct", None).unwrap(), Way::Direct);
        assert_eq!(way(&plan, "pgbouncer-best-pool", Some(3)).unwrap(), Way::PgBouncer { pool: 3 });
        assert_eq!(way(&plan, "pgpool-same-pool", None).unwrap(), Way::PgPool { processes: POOL });
        assert_eq!(way(&plan, "pgpool-best-pool", Some(3)).unwrap(), Way::PgPool { processes: 3 });
        assert!(way(&plan, "pgpool-best-pool", None).is_err());
        assert_eq!(way(&plan, "gate", None).unwrap(), Way::Gate { keys: vec![] });
        let contending = vec![("contention".to_owned(), "\"auto\"".to_owned())];
        assert_eq!(way(&plan, "gate-contention", None).unwrap(), Way::Gate { keys: contending });
        assert!(way(&plan, "gate-calibrated", None).is_err());
    }

    #[test]
    fn variants_with_the_same_keys_are_alike() {
        let mut plan = plan();
        let keys = plan.variant["gate-contention"].clone();
        plan.variant.insert("once-more".to_owned(), keys);
        assert!(are_alike(&plan, "gate-contention", "once-more", None));
        assert!(!are_alike(&plan, "gate", "once-more", None));
        assert!(!are_alike(&plan, "nobody", "nobody", None));
    }

    #[test]
    fn before_a_site_nobody_stands_who_speaks_to_databases() {
        let plan = plan();
        assert!(before_site(&plan, "direct", None, 1).is_ok_and(|gate| gate.is_none()));
        let said = before_site(&plan, "pgbouncer-same-pool", None, 1).map(drop).unwrap_err().to_string();
        assert!(said.contains("stands before a database, not before a site"), "{said}");
    }
}
