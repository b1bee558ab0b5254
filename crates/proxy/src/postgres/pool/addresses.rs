//! Connections to addresses that the server's name no longer has: idle ones are closed, those in use when
//! they are given back.

use std::net::SocketAddr;

use super::{Pools, State};
use crate::postgres::server::Server;

impl Pools {
    /// From now on the server has only these addresses: idle connections to others are closed, and those in
    /// use when they are given back.
    pub(crate) fn keep_at(&self, addresses: Vec<SocketAddr>) {
        let mut state = self.state.lock();
        state.addresses = Some(addresses);
        let idle: Vec<_> =
            state.pools.iter_mut().flatten().flat_map(|pool| std::mem::take(&mut pool.idle)).collect();
        for server in idle {
            if state.may_keep(&server) {
                // Its pool has it still in its size, so that it exists.
                if let Some(pool) = state.pool(server.pool) {
                    pool.idle.push(server);
                }
            } else {
                self.retire(&mut state, server);
            }
        }
    }

    /// From now on connections may be anywhere.
    pub(crate) fn keep_everywhere(&self) {
        self.state.lock().addresses = None;
    }

    pub(super) fn retire(&self, state: &mut State, server: Server) {
        let (id, generation) = (server.pool, server.generation);
        let address = server.route.address.map(tracing::field::display);
        tracing::info!(
            server = server.id,
            address,
            "closed a connection to an address that the server's name has no more"
        );
        server.close();
        self.shrank(state, id, generation);
    }
}

impl State {
    /// Whether a connection is to an address that the server still has. A connection of an earlier generation
    /// counts as such: it is closed for its generation.
    pub(super) fn may_keep(&self, server: &Server) -> bool {
        match (&self.addresses, server.route.address) {
            (Some(addresses), Some(address)) => {
                server.generation < self.generation || addresses.contains(&address)
            }
            _ => true,
        }
    }
}
