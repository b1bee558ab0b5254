//! Starts a peer or a gate before the origin.

use super::variant::{Setting, Way};
use crate::Error;
use crate::gatekeeper::Gatekeeper;
use crate::http::{HaProxy, HaProxyRole, Limiter, Nginx, NginxRole};

/// The process in between, if there is one. Dropping it ends it.
pub(super) enum Front {
    Nobody,
    Gatekeeper(Gatekeeper),
    HaProxy(HaProxy),
    Nginx(Nginx),
    Limiter(Limiter),
}

impl Front {
    /// Starts the gate or peer before an origin at this port, beside the clients: the origin has a processor
    /// of its own. Blocks.
    pub(super) fn start(way: Way, setting: Setting, origin: u16) -> Result<Self, Error> {
        let value = |key| setting.value(key);
        Ok(match way {
            Way::Nobody => Self::Nobody,
            Way::Gate(keys) => Self::Gatekeeper(Gatekeeper::start_http(origin, keys, None)?),
            Way::HaProxy => {
                let (maxconn, queue) = (value("maxconn"), value("timeout queue"));
                Self::HaProxy(HaProxy::start(HaProxyRole::Limited { origin, maxconn, queue }, None)?)
            }
            Way::Nginx => {
                let role = NginxRole::Limited { origin, connections: value("limit_conn") };
                Self::Nginx(Nginx::start(&role, None)?)
            }
            Way::Library(library) => Self::Limiter(Limiter::start(library, origin, setting.0, None)?),
        })
    }

    /// The port on 127.0.0.1 that clients ask.
    pub(super) const fn port(&self, origin: u16) -> u16 {
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

    use super::super::variant::{ALL, Variant};
    use super::*;
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
        let origin = origin();
        for variant in ALL.into_iter().filter(Variant::is_peer) {
            for setting in [variant.settings()[0], variant.settings()[variant.settings().len() - 1]] {
                let front = Front::start(variant.way, setting, origin)
                    .unwrap_or_else(|error| panic!("{} with {setting}: {error}", variant.name));
                let request = b"GET /shop/home?work=1 HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n";
                let statuses = ask(front.port(origin), request, 3).await.unwrap();
                assert_eq!(statuses, [200; 3], "{} with {setting}", variant.name);
            }
        }
    }
}
