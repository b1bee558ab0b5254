//! What everybody used within the window of a cell, and what a gate found by its end.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::anatomy::{self, Anatomy};
use super::cell::Measured;
use super::learned::{self, LearnedPage, Looks};
use crate::blocking::blocking;
use crate::load::{CpuMeter, FamilyMeter, ProcessorMeter, SpeedMeter};
use crate::{Error, gatekeeper};

/// How often within the window it is looked how much a gate has in flight.
const LOOKS: u32 = 4;

/// Whose processor time is measured.
#[derive(Clone, Debug)]
pub(super) struct Whose {
    /// The server's first process.
    pub(super) server: u32,
    /// Its processor, if it has one of its own.
    pub(super) server_cpu: Option<usize>,
    /// The process in between; its children count too.
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
    pub(super) speed: Option<f64>,
    pub(super) capacity: Option<f64>,
    pub(super) learned: Vec<LearnedPage>,
    pub(super) anatomy: Option<Anatomy>,
    pub(super) load_seconds: Option<f64>,
}

impl Used {
    /// The part of a cell's figures that it is.
    pub(super) fn measured(self) -> Measured {
        Measured {
            client_cpu: self.clients,
            proxy_cpu: self.proxy,
            server_cpu: self.server,
            others_cpu: self.others,
            speed: self.speed,
            capacity: self.capacity,
            learned: self.learned,
            anatomy: self.anatomy,
            load_seconds: self.load_seconds,
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
            let proxy = self.proxy.map(FamilyMeter::start);
            let clients = CpuMeter::start(&self.clients);
            let processor = self.server_cpu.map(ProcessorMeter::start);
            let speed = self.server_cpu.map(SpeedMeter::start);
            let own = FamilyMeter::start(self.server);
            let mut load_seconds: Option<f64> = None;
            for look in 1..=LOOKS {
                tokio::time::sleep_until((counted + window * look / LOOKS).into()).await;
                let load = asked(self.admin_port, gatekeeper::load).await;
                load_seconds = load.map(|load| load.max(load_seconds.unwrap_or(0.0))).or(load_seconds);
            }
            let (all, own) = (processor.map(|meter| meter.share()), own.share());
            let (proxy, clients) = (proxy.map_or(0.0, |meter| meter.share()), clients.share());
            // Clients are there still: whatever it found holds.
            let capacity = asked(self.admin_port, gatekeeper::capacity).await;
            Used {
                proxy,
                clients,
                server: Some(own),
                speed: speed.and_then(|meter| meter.speed()),
                others: all.map(|all| (all - own).max(0.0)),
                capacity,
                anatomy: match looking {
                    Some(task) => task.await.ok().and_then(Result::ok),
                    None => None,
                },
                learned: learning.await.unwrap_or_default(),
                load_seconds,
            }
        })
    }
}

/// What a gate tells, if there is one.
async fn asked(admin_port: Option<u16>, what: fn(u16) -> Option<f64>) -> Option<f64> {
    let port = admin_port?;
    blocking(move || Ok(what(port))).await.unwrap_or_default()
}

/// What was measured beside the clients.
pub(super) async fn used(meters: Option<JoinHandle<Used>>) -> Result<Used, Error> {
    match meters {
        Some(task) => task.await.map_err(|_| Error::Experiment("measuring was aborted".to_owned())),
        None => Ok(Used::default()),
    }
}
