//! What stands before an origin: nothing, a gate, HAProxy, nginx, a library in a proxy.

use std::collections::BTreeMap;

use crate::Error;
use crate::experiment::control::before_site;
use crate::experiment::plan::Plan;
use crate::gatekeeper::Gatekeeper;
use crate::http::{HaProxy, HaProxyRole, Library, Limiter, Nginx, NginxRole};

/// The process in between, if there is one. Dropping it ends it.
pub(super) enum Front {
    Nobody,
    Gatekeeper(Gatekeeper),
    HaProxy(HaProxy),
    Nginx(Nginx),
    Limiter(Limiter),
}

impl Front {
    /// Starts a variant before an origin at this port, beside the clients: the origin has a processor of its
    /// own. A peer has the setting of this number. Blocks.
    pub(super) fn start(plan: &Plan, variant: &str, best: Option<u32>, origin: u16) -> Result<Self, Error> {
        let Some(settings) = plan.peer.get(variant) else {
            return Ok(before_site(plan, variant, best, origin)?.map_or(Self::Nobody, Self::Gatekeeper));
        };
        let number = best.unwrap_or_default() as usize;
        let wrong = || Error::Experiment(format!("{variant} has no setting {number}"));
        Self::peer(variant, settings.get(number).ok_or_else(wrong)?, origin)
    }

    fn peer(name: &str, setting: &BTreeMap<String, String>, origin: u16) -> Result<Self, Error> {
        let value = |key: &str| setting.get(key).cloned().unwrap_or_default();
        Ok(match name {
            "haproxy" => {
                let (maxconn, queue) = (value("maxconn"), value("timeout queue"));
                Self::HaProxy(HaProxy::start(HaProxyRole::Limited { origin, maxconn, queue }, None)?)
            }
            "nginx" => {
                let role = NginxRole::Limited { origin, connections: value("limit_conn") };
                Self::Nginx(Nginx::start(&role, None)?)
            }
            _ => {
                let unknown = || Error::Experiment(format!("`{name}` is no peer"));
                let library = Library::named(name).ok_or_else(unknown)?;
                Self::Limiter(Limiter::start(library, origin, setting, None)?)
            }
        })
    }

    /// The port on 127.0.0.1 that clients ask.
    pub(super) fn port(&self, origin: u16) -> u16 {
        match self {
            Self::Nobody => origin,
            Self::Gatekeeper(gate) => gate.port(),
            Self::HaProxy(haproxy) => haproxy.port(),
            Self::Nginx(nginx) => nginx.port(),
            Self::Limiter(limiter) => limiter.port(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::path::Path;

    use super::*;
    use crate::experiment::plan::PEERS;
    use crate::http::ask;

    /// Answers everybody with 200, one connection after the other; ends with the process.
    fn origin() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                        if line.is_empty() {
                            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndone\n";
                            (&stream).write_all(answer).unwrap();
                        }
                    }
                });
            }
        });
        port
    }

    /// Every peer that `scripts/setup web-proxies peers` installs, with the first and the last of its
    /// settings.
    #[tokio::test]
    async fn every_peer_passes_on_what_it_lets_in() {
        let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let plan = Plan::load(&experiments, "peers-origin").unwrap();
        assert_eq!(plan.peer.len(), PEERS.len());
        let origin = origin();
        for (name, settings) in &plan.peer {
            for number in [0, settings.len() as u32 - 1] {
                let front = Front::start(&plan, name, Some(number), origin)
                    .unwrap_or_else(|error| panic!("{name} with setting {number}: {error}"));
                let request = b"GET /shop/home?work=1 HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n";
                let statuses = ask(front.port(origin), request, 3).await.unwrap();
                assert_eq!(statuses, [200; 3], "{name} with setting {number}");
            }
        }
    }
}
