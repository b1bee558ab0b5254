//! What everybody used within the window of a cell, and what a gate found by its end.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::load::{CpuMeter, ProcessorMeter};
use crate::process::{blocking, family};
use crate::{Error, gatekeeper};

/// Whose processor time is measured.
#[derive(Clone, Debug)]
pub(super) struct Whose {
    /// The server's first process.
    pub(super) server: u32,
    /// Its processor, if it has one of its own.
    pub(super) server_cpu: Option<usize>,
    /// Whether its processes stay while it is measured.
    pub(super) is_steady: bool,
    /// The process in between; its children count too.
    pub(super) proxy: Option<u32>,
    /// Where a gate tells what it has found.
    pub(super) admin_port: Option<u16>,
    /// Processes of clients, where those are processes of their own.
    pub(super) clients: Vec<u32>,
}

/// In processors, and what a gate found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    pub(super) proxy: f64,
    pub(super) clients: f64,
    pub(super) server: Option<f64>,
    pub(super) others: Option<f64>,
    pub(super) capacity: Option<f64>,
}

impl Whose {
    /// Measures from then on for so long.
    pub(super) fn measure(self, counted: Instant, window: Duration) -> JoinHandle<Used> {
        tokio::spawn(async move {
            tokio::time::sleep_until(counted.into()).await;
            let proxy = self.proxy.map(|pid| CpuMeter::start(&family(pid)));
            let clients = CpuMeter::start(&self.clients);
            let processor = self.server_cpu.map(ProcessorMeter::start);
            let own = CpuMeter::start(&family(self.server));
            tokio::time::sleep_until((counted + window).into()).await;
            let (all, own) = (processor.map(|meter| meter.share()), own.share());
            let (proxy, clients) = (proxy.map_or(0.0, |meter| meter.share()), clients.share());
            // Clients are there still: whatever it found holds.
            let capacity = match self.admin_port {
                Some(port) => blocking(move || Ok(gatekeeper::capacity(port))).await.unwrap_or_default(),
                None => None,
            };
            Used {
                proxy,
                clients,
                server: if self.is_steady { Some(own) } else { all },
                others: all.filter(|_| self.is_steady).map(|all| (all - own).max(0.0)),
                capacity,
            }
        })
    }
}

/// What was measured beside the clients.
pub(super) async fn used(meters: Option<JoinHandle<Used>>) -> Result<Used, Error> {
    match meters {
        Some(task) => task.await.map_err(|_| Error::Experiment("measuring was aborted".to_owned())),
        None => Ok(Used::default()),
    }
}
