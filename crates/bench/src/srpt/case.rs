//! What is compared: loads, setups, and what orders the bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use admission::{Cutoffs, EgressOrder, EgressPolicy};
use sim::uplink::{Demand, Download, Phases, Plain, Queue, plain, serve};

/// Bits per second of the link.
pub const BITS: u64 = 10_000_000;
/// Most connections that the origin serves or lets wait.
const WORKERS: usize = crate::http::origin::CONNECTIONS_MAX;
/// The queue of a listener of Rust's standard library.
const BACKLOG: usize = 128;
/// Bytes of data in a packet over Ethernet beside TCP's time stamps.
const SEGMENT: u32 = 1_448;
/// From the server to a client and back between two namespaces.
const ROUND_TRIP: Duration = Duration::from_micros(100);
/// A kernel's first time-out today.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a simulated run goes on behind its last request.
const DRAIN: Duration = Duration::from_secs(300);

/// What orders the bytes of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// The keys `egress` and `uplink` of the gate; `None`: there is no gate.
    pub gate: Option<(&'static str, &'static str)>,
}

/// The rate of the link ([`BITS`]), as a gate is told.
const TOLD: &str = "10Mbit";

/// The paper's FAIR is a server without a gate.
const VARIANTS: [Variant; 5] = [
    Variant { name: "FAIR", gate: None },
    Variant { name: "fair", gate: Some(("fair", TOLD)) },
    Variant { name: "bands", gate: Some(("bands", TOLD)) },
    Variant { name: "SRPT", gate: Some(("srpt", TOLD)) },
    FOUND,
];
/// SRPT on a link whose rate the gate finds.
pub(super) const FOUND: Variant = Variant { name: "auto", gate: Some(("srpt", "auto")) };

/// The variants with these names, or all of them.
///
/// # Errors
/// The first name that no variant has.
pub fn variants_called(names: &[String]) -> Result<Vec<Variant>, String> {
    if names.is_empty() {
        return Ok(VARIANTS.to_vec());
    }
    let called = |name: &String| {
        let all = VARIANTS.map(|variant| variant.name).join(", ");
        let found = VARIANTS.into_iter().find(|variant| variant.name == name);
        found.ok_or_else(|| format!("there is no variant `{name}`; there are {all}"))
    };
    names.iter().map(called).collect()
}

/// How many requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A workload of the paper's Table I, from 1 to 10.
    Workload(usize),
    /// A part of the link that doesn't change.
    Persistent(f64),
}

impl Load {
    pub(super) fn phases(self) -> Phases {
        match self {
            Self::Workload(number) => {
                Phases::published(number).unwrap_or_else(|| Phases::constant(f64::MIN_POSITIVE))
            }
            Self::Persistent(load) => Phases::constant(load),
        }
    }

    /// The shortest time of whole periods that is at least so long.
    pub(super) fn whole(self, least: Duration) -> Duration {
        match self {
            Self::Workload(_) => {
                let period: Duration = self.phases().0.iter().map(|phase| phase.0).sum();
                period.mul_f64((least.as_secs_f64() / period.as_secs_f64()).ceil().max(1.0))
            }
            Self::Persistent(_) => least,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(number) => write!(out, "W{number}"),
            Self::Persistent(load) => write!(out, "{load}"),
        }
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let workload = text.strip_prefix('W').and_then(|number| number.parse().ok());
        let persistent = text.parse().ok().filter(|load| (0.01..=10.0).contains(load));
        match (workload, persistent) {
            (Some(number), _) if Phases::published(number).is_some() => Ok(Self::Workload(number)),
            (None, Some(load)) => Ok(Self::Persistent(load)),
            _ => Err("isn't a workload from `W1` to `W10`, nor a part of the link such as `1.2`".to_owned()),
        }
    }
}

/// A row of the paper's Table II.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// A: nothing, one request a connection.
    Baseline,
    /// E: several requests over one connection.
    Persistent(u32),
    /// H: users abort after so many seconds and try again three times.
    Impatient(u32),
    /// I: packets with so many bytes of data.
    SmallPackets(u32),
    /// What is left of J without delay and loss: five requests a connection; users abort after so many
    /// seconds, three retries.
    Realistic(u32),
}

impl Setup {
    pub(super) const BASELINE: Self = Self::Baseline;

    pub(super) const fn reuse(self) -> u32 {
        match self {
            Self::Persistent(requests) => requests,
            Self::Realistic(_) => 5,
            _ => 1,
        }
    }

    pub(super) fn patience(self) -> Option<Duration> {
        match self {
            Self::Impatient(seconds) | Self::Realistic(seconds) => Some(Duration::from_secs(seconds.into())),
            _ => None,
        }
    }

    pub(super) fn retries(self) -> u32 {
        if self.patience().is_some() { 3 } else { 0 }
    }

    /// Most bytes of data in a packet, with TCP's options.
    pub(super) const fn segment(self) -> u32 {
        if let Self::SmallPackets(bytes) = self { bytes } else { 1_460 }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Baseline => write!(out, "A"),
            Self::Persistent(requests) => write!(out, "E{requests}"),
            Self::Impatient(seconds) => write!(out, "H{seconds}"),
            Self::SmallPackets(bytes) => write!(out, "I{bytes}"),
            Self::Realistic(seconds) => write!(out, "J{seconds}"),
        }
    }
}

impl FromStr for Setup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (letter, number) = text.split_at_checked(1).unwrap_or((text, ""));
        let number = |usual: u32, allowed: std::ops::RangeInclusive<u32>| {
            let found = if number.is_empty() { Ok(usual) } else { number.parse() };
            found.ok().filter(|number| allowed.contains(number)).ok_or_else(|| {
                format!("`{letter}` takes a number from {} to {}", allowed.start(), allowed.end())
            })
        };
        match letter {
            "A" if text == "A" => Ok(Self::Baseline),
            "E" => number(5, 1..=1_000).map(Self::Persistent),
            "H" => number(10, 1..=100).map(Self::Impatient),
            "I" => number(536, 128..=1_460).map(Self::SmallPackets),
            "J" => number(7, 1..=100).map(Self::Realistic),
            "B" | "C" | "D" => Err("delay and loss need an emulator, which isn't built; \
                                    `uplink` of `make uplink` simulates them"
                .to_owned()),
            "F" => Err("Linux has no setting for the first time-out; it is 1 s".to_owned()),
            "G" => Err("Linux uses SYN cookies by itself, so that there is nothing to compare".to_owned()),
            _ => Err("isn't one of A, E, H, I, J".to_owned()),
        }
    }
}

/// The simulator's setup of a variant; without one, the link alone.
pub(super) fn simulated(variant: Option<Variant>, setup: Setup) -> sim::uplink::Setup {
    let fair = Queue::fair();
    let order = variant.and_then(|variant| variant.gate).map(|(egress, _)| egress);
    let gated = order.is_some();
    let queue = match order {
        None => fair,
        Some("fair") => Queue::gate(EgressOrder::Fair, None),
        Some("bands") => Queue::gate(EgressOrder::Bands(Cutoffs::Learned), None),
        Some(_) => Queue::gate(EgressOrder::ShortestRemaining, Some(1.0)),
    };
    sim::uplink::Setup {
        bits: BITS as f64,
        segment: SEGMENT.min(setup.segment()),
        round_trip: ROUND_TRIP,
        reuse: setup.reuse(),
        first_timeout: FIRST_TIMEOUT,
        patience: setup.patience(),
        retries: setup.retries(),
        half_open: if gated { 1 << 20 } else { BACKLOG },
        backlog: if gated { 1 << 20 } else { BACKLOG },
        workers: if gated { 1 << 20 } else { WORKERS },
        ..sim::uplink::Setup::baseline(queue)
    }
}

/// The mean of the same requests in the simulator, and under an order that knows all sizes on a link with
/// nothing but bytes.
pub(super) fn in_the_simulator(
    variant: Variant,
    setup: Setup,
    requests: &[Download],
    length: Duration,
) -> (f64, f64) {
    let alone = simulated(None, setup);
    let served = serve(&simulated(Some(variant), setup), &Demand::Open(requests.to_vec()), length + DRAIN, 1);
    let whole = |one: &Download| Download { bytes: alone.on_the_link(one.bytes), ..*one };
    let shortest = EgressPolicy {
        order: EgressOrder::ShortestRemaining,
        aging: None,
        quantum: SEGMENT,
        ..EgressPolicy::default()
    };
    let requests: Vec<Download> = requests.iter().map(whole).collect();
    let clairvoyant = plain(shortest, Plain::Known, alone.bits / 8.0, &requests, f64::INFINITY);
    (served.mean(), clairvoyant.mean())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_and_setups_are_read_as_they_are_written() {
        for text in ["W1", "W10", "1.2"] {
            assert_eq!(text.parse::<Load>().unwrap().to_string(), text);
        }
        for text in ["W0", "W11", "0", "much", "11"] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
        for text in ["A", "E10", "H3", "I536", "J7"] {
            assert_eq!(text.parse::<Setup>().unwrap().to_string(), text);
        }
        assert_eq!("E".parse(), Ok(Setup::Persistent(5)));
        for (text, says) in [
            ("B", "emulator"),
            ("F", "first time-out"),
            ("G", "cookies"),
            ("E0", "from 1 to"),
            ("A5", "one of"),
        ] {
            assert!(text.parse::<Setup>().unwrap_err().contains(says), "{text}");
        }
        assert!(variants_called(&["what".to_owned()]).unwrap_err().contains("FAIR, fair, bands, SRPT, auto"));
    }

    #[test]
    fn a_workload_is_played_in_whole_periods() {
        let seconds = |load: &str, least| load.parse::<Load>().unwrap().whole(Duration::from_secs(least));
        assert_eq!(seconds("W1", 51), Duration::from_secs(100));
        assert_eq!(seconds("W2", 1), Duration::from_secs(20));
        assert_eq!(seconds("1.2", 51), Duration::from_secs(51));
    }
}
