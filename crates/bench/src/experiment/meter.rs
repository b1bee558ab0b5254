//! What everybody used within the window of a cell, and what a gate found by its end.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::anatomy::{self, Anatomy};
use super::cell::Measured;
use super::learned::{self, LearnedPage, Looks};
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
    /// The process in between.
    pub(super) proxy: Option<u32>,
    /// Where a gate tells what it has found.
    pub(super) admin_port: Option<u16>,
    /// Processes of clients, where those are processes of their own.
    pub(super) clients: Vec<u32>,
    /// How closely it is looked at what a gate learns of pages.
    pub(super) looks: Looks,
    /// Whether it is looked at what the server is made of.
    pub(super) with_anatomy: bool,
}

/// In processors, and what a gate found.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    pub(super) proxy: f64,
    pub(super) clients: f64,
    pub(super) server: Option<f64>,
    pub(super) others: Option<f64>,
    pub(super) capacity: Option<f64>,
    pub(super) learned: Vec<LearnedPage>,
    pub(super) anatomy: Option<Anatomy>,
}

impl Used {
    /// The part of a cell's figures that it is.
    pub(super) fn measured(self) -> Measured {
        Measured {
            client_cpu: self.clients,
            proxy_cpu: self.proxy,
            server_cpu: self.server,
            others_cpu: self.others,
            capacity: self.capacity,
            learned: self.learned,
            anatomy: self.anatomy,
            ..Measured::default()
        }
    }
}

impl Whose {
    /// Measures from then on for so long.
    pub(super) fn measure(self, counted: Instant, window: Duration) -> JoinHandle<Used> {
        let looks = if self.admin_port.is_some() { self.looks } else { Looks::None };
        let learning = learned::watch(self.admin_port.unwrap_or_default(), counted, window, looks);
        let learning = tokio::spawn(learning);
        let looking = anatomy::watch(self.server, self.server_cpu, counted, window);
        let looking = self.with_anatomy.then(|| tokio::spawn(looking));
        tokio::spawn(async move {
            tokio::time::sleep_until(counted.into()).await;
            let proxy = self.proxy.map(|pid| CpuMeter::start(&[pid]));
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
                anatomy: match looking {
                    Some(task) => task.await.ok().and_then(Result::ok),
                    None => None,
                },
                learned: learning.await.unwrap_or_default(),
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
