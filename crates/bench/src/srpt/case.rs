//! What is compared: loads, setups, and what orders the bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use admission::{Cutoffs, EgressOrder, EgressPolicy};
use sim::uplink::{Demand, Digest, Download, Phases, Plain, Queue, Served, Tcp, plain, serve};

use testbed::wan::Wan;

use super::PATIENCE;

/// Bits per second of the link.
pub const BITS: u64 = 10_000_000;
/// Most connections that the origin serves or lets wait.
const WORKERS: usize = crate::http::origin::CONNECTIONS_MAX;
/// The queue of a listener of Rust's standard library.
const BACKLOG: usize = 128;
/// Bytes of data in a packet over Ethernet beside TCP's time stamps.
const SEGMENT: u32 = 1_448;
/// Headers of TCP with time stamps, IP and Ethernet, preamble, checksum and gap.
const OVERHEAD: u64 = 90;
/// Bytes of a response's head from the origin, and from a gate, which adds the date.
const HEAD: u64 = 41;
const HEAD_OF_GATE: u64 = 80;
/// The server acknowledges the first request of a connection. Later ones are acknowledged with their
/// responses, and the client's end with the server's own.
const ACKNOWLEDGMENTS: u32 = 1;
/// Packets that a gate aims to keep in the kernel's queue.
const STANDING: usize = 4;
/// Bytes of a turn on a link that all share alike.
const FINE: u32 = 50;
/// More connections than there are.
const NO_BOUND: usize = 1 << 20;
/// From the server to a client and back between two namespaces.
const ROUND_TRIP: Duration = Duration::from_micros(100);
/// A kernel's first time-out today.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a fair link that loses packets is simulated.
const LOSSY_RUNS: u64 = 20;
/// How long a simulated run goes on behind its last request.
const DRAIN: Duration = Duration::from_secs(300);

/// What orders the bytes of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// There is no gate.
    Nobody,
    /// A gate, with these values of its keys `egress` and `uplink`.
    Gate {
        /// The order.
        order: &'static str,
        /// The rate.
        rate: &'static str,
    },
    /// The kernel, as a gate tells it.
    Kernel {
        /// The value of the gate's key `uplink`.
        bands: &'static str,
        /// Where the kernel's bands end, behind that of packets without data.
        cutoffs: &'static [u64],
    },
}

/// One of those that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// What orders.
    pub by: By,
}

impl Variant {
    const fn gate(name: &'static str, order: &'static str, rate: &'static str) -> Self {
        Self { name, by: By::Gate { order, rate } }
    }
}

/// SRPT in which a large response may wait without bound.
const UNAGED: &str = "srpt-without-aging";
/// The rate of the link ([`BITS`]), as a gate is told.
const TOLD: &str = "10Mbit";

/// The paper's FAIR is a server without a gate.
const VARIANTS: [Variant; 8] = [
    Variant { name: "FAIR", by: By::Nobody },
    Variant::gate("bands", "bands", TOLD),
    Variant::gate("SRPT", "srpt", TOLD),
    Variant::gate("no aging", UNAGED, TOLD),
    FOUND,
    Variant::gate("fair", "fair", TOLD),
    Variant { name: "htb", by: By::Kernel { bands: "htb", cutoffs: &[1, 1_000, 2_000, 5_000, 50_000] } },
    Variant { name: "pfifo_fast", by: By::Kernel { bands: "pfifo_fast", cutoffs: &[2_000, 50_000] } },
];
/// How many of them are compared if none is named.
const USUAL: usize = 5;
/// SRPT on a link whose rate the gate finds.
pub(super) const FOUND: Variant = Variant::gate("auto", "srpt", "auto");

/// The variants with these names, or those whose order is the server's own.
///
/// # Errors
/// The first name that no variant has.
pub fn variants_called(names: &[String]) -> Result<Vec<Variant>, String> {
    if names.is_empty() {
        return Ok(VARIANTS[..USUAL].to_vec());
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
    /// B: a round trip of so many milliseconds.
    Delay(u32),
    /// C: so many percent of packets are lost, in each direction.
    Loss(u32),
    /// D: the published B and C together.
    DelayAndLoss,
    /// E: several requests over one connection.
    Persistent(u32),
    /// F: so many milliseconds until an opening of a connection is sent again.
    FirstTimeout(u32),
    /// H: users abort after so many seconds and try again three times.
    Impatient(u32),
    /// I: packets with so many bytes of data.
    SmallPackets(u32),
    /// J: D, five requests a connection, and users that abort after so many seconds; three retries.
    Realistic(u32),
}

/// What varies from setup to setup of one letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// B: the round trip, in milliseconds.
    RoundTrip,
    /// C: the loss, in percent.
    Loss,
    /// E: requests over one connection.
    Requests,
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

    /// The published round trip and loss.
    const PUBLISHED: (u32, u32) = (100, 5);

    /// The round trip in milliseconds and the loss in percent.
    const fn far(self) -> (u32, u32) {
        match self {
            Self::Delay(milliseconds) => (milliseconds, 0),
            Self::Loss(percent) => (0, percent),
            Self::DelayAndLoss | Self::Realistic(_) => Self::PUBLISHED,
            _ => (0, 0),
        }
    }

    /// How much of a condition this setup has, if it has nothing else.
    pub(super) const fn at(self, condition: Condition) -> Option<u32> {
        match (condition, self) {
            (Condition::RoundTrip | Condition::Loss, Self::Baseline) => Some(0),
            (Condition::Requests, Self::Baseline) => Some(1),
            (Condition::RoundTrip, Self::Delay(much))
            | (Condition::Loss, Self::Loss(much))
            | (Condition::Requests, Self::Persistent(much)) => Some(much),
            _ => None,
        }
    }

    /// TCP's first time-out, unless it is the kernel's own.
    pub(super) fn first_timeout(self) -> Option<Duration> {
        match self {
            Self::FirstTimeout(milliseconds) => Some(Duration::from_millis(milliseconds.into())),
            _ => None,
        }
    }

    /// What is behind the link.
    pub(super) fn wan(self) -> Option<Wan> {
        let (milliseconds, percent) = self.far();
        let delay = Duration::from_millis(milliseconds.into()) / 2;
        let loss = u8::try_from(percent).unwrap_or(100);
        (milliseconds > 0 || percent > 0).then_some(Wan { delay, loss, seed: 1 })
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
            Self::Delay(milliseconds) => write!(out, "B{milliseconds}"),
            Self::Loss(percent) => write!(out, "C{percent}"),
            Self::DelayAndLoss => write!(out, "D"),
            Self::Persistent(requests) => write!(out, "E{requests}"),
            Self::FirstTimeout(milliseconds) => write!(out, "F{}", f64::from(*milliseconds) / 1_000.0),
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
        let seconds = if number.is_empty() { Ok(0.5) } else { number.parse::<f64>() };
        let seconds = seconds.ok().filter(|seconds| (0.1..=10.0).contains(seconds));
        let seconds = seconds.map(|seconds| (seconds * 1_000.0).round() as u32);
        let seconds = seconds.ok_or_else(|| format!("`{letter}` takes seconds from 0.1 to 10"));
        let number = |usual: u32, allowed: std::ops::RangeInclusive<u32>| {
            let found = if number.is_empty() { Ok(usual) } else { number.parse() };
            found.ok().filter(|number| allowed.contains(number)).ok_or_else(|| {
                format!("`{letter}` takes a number from {} to {}", allowed.start(), allowed.end())
            })
        };
        match letter {
            "A" if text == "A" => Ok(Self::Baseline),
            "B" => number(100, 1..=1_000).map(Self::Delay),
            "C" => number(5, 1..=50).map(Self::Loss),
            "D" if text == "D" => Ok(Self::DelayAndLoss),
            "E" => number(5, 1..=1_000).map(Self::Persistent),
            "H" => number(10, 1..=100).map(Self::Impatient),
            "I" => number(536, 128..=1_460).map(Self::SmallPackets),
            "J" => number(7, 1..=100).map(Self::Realistic),
            "F" => seconds.map(Self::FirstTimeout),
            "G" => Err("Linux uses SYN cookies by itself, so that there is nothing to compare".to_owned()),
            _ => Err("isn't one of A, B, C, D, E, F, H, I, J".to_owned()),
        }
    }
}

/// The link as loads count it: bytes, the headers of their packets, and two packets without data for each
/// connection.
pub(super) fn counted(setup: Setup) -> sim::uplink::Setup {
    let segment = SEGMENT.min(setup.segment());
    sim::uplink::Setup { bits: BITS as f64, segment, ..sim::uplink::Setup::baseline(Queue::fair()) }
}

/// A gate as it is: it knows of its clients' connections what the kernel tells.
fn paced(order: EgressOrder, aging: Option<f64>, rate: &str) -> Queue {
    let rate = (rate == TOLD).then_some(BITS / 8);
    Queue::Paced { policy: EgressPolicy { order, aging, rate, ..EgressPolicy::default() }, length: 100 }
}

/// The simulator's setup of a variant: the link as it is.
pub(super) fn simulated(by: By, setup: Setup) -> sim::uplink::Setup {
    let queue = match by {
        By::Nobody => Queue::pfifo_fast(&[], 100),
        By::Kernel { bands: "pfifo_fast", cutoffs } => Queue::pfifo_fast(cutoffs, 100),
        By::Kernel { cutoffs, .. } => Queue::Kernel { cutoffs: cutoffs.to_vec(), length: 100, frees: 1 },
        By::Gate { order: "fair", .. } => Queue::gate(EgressOrder::Fair, None),
        By::Gate { order: "bands", rate } => paced(EgressOrder::Bands(Cutoffs::Learned), None, rate),
        By::Gate { order: UNAGED, rate } => paced(EgressOrder::ShortestRemaining, None, rate),
        By::Gate { rate, .. } => paced(EgressOrder::ShortestRemaining, Some(1.0), rate),
    };
    let (head, workers) = if by == By::Nobody { (HEAD, WORKERS) } else { (HEAD_OF_GATE, NO_BOUND) };
    sim::uplink::Setup {
        queue,
        overhead: OVERHEAD,
        head,
        acknowledgments: ACKNOWLEDGMENTS,
        standing: STANDING,
        tcp: Tcp::Linux,
        round_trip: ROUND_TRIP + Duration::from_millis(setup.far().0.into()),
        loss: f64::from(setup.far().1) / 100.0,
        reuse: setup.reuse(),
        first_timeout: setup.first_timeout().unwrap_or(FIRST_TIMEOUT),
        patience: Some(setup.patience().unwrap_or(PATIENCE)),
        retries: setup.retries(),
        half_open: NO_BOUND,
        backlog: if by == By::Nobody { BACKLOG } else { NO_BOUND },
        workers,
        ..counted(setup)
    }
}

/// How long a user has waited whose response never came whole.
pub(super) fn waited(setup: Setup) -> Duration {
    setup.patience().unwrap_or(PATIENCE) * (1 + setup.retries())
}

/// The mean response time of all requests. One that never came whole counts with what its user waited.
pub(super) fn mean_of_all(served: &Served, setup: Setup) -> f64 {
    let waited = waited(setup).as_secs_f64();
    let times = served.responses.iter().map(|one| one.response.unwrap_or(waited));
    crate::stats::mean(&times.collect::<Vec<_>>())
}

/// What simulations say of the same requests.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// The mean of the variant's responses that came whole, and of all requests.
    pub(super) mean: [f64; 2],
    /// The part of its requests that didn't come whole.
    pub(super) incomplete: f64,
    /// The mean under an order that knows all sizes, on a link of bytes alone.
    pub(super) clairvoyant: f64,
    /// What each of the largest hundredth takes where all share alike: the mean and the most of several runs.
    pub(super) fair: Vec<Option<[f64; 2]>>,
}

/// Simulates the variant, and what it is compared with.
pub(super) fn in_the_simulator(
    variant: Variant,
    setup: Setup,
    requests: &[Download],
    length: Duration,
) -> Expected {
    let link = simulated(variant.by, setup);
    let played =
        |link: &sim::uplink::Setup, seed| serve(link, &Demand::Open(requests.to_vec()), length + DRAIN, seed);
    let whole = |one: &Download| Download { bytes: link.on_the_link(one.bytes), ..*one };
    let bytes: Vec<Download> = requests.iter().map(whole).collect();
    let alone = |order, quantum| {
        let policy = EgressPolicy { order, aging: None, quantum, ..EgressPolicy::default() };
        plain(policy, Plain::Known, link.bits / 8.0, &bytes, f64::INFINITY)
    };
    let fair = match setup.wan() {
        None => vec![alone(EgressOrder::Fair, FINE)],
        // A response that loses packets takes longer on a fair link, too: how long is chance.
        Some(wan) => {
            let link = simulated(By::Gate { order: "fair", rate: TOLD }, setup);
            let runs = if wan.loss > 0 { LOSSY_RUNS } else { 1 };
            (1..=runs).map(|seed| played(&link, seed)).collect()
        }
    };
    let fair: Vec<_> = fair.iter().map(|served| Digest::of(served, length).of_largest).collect();
    let of_all = |at: usize| {
        let times: Vec<f64> = fair.iter().filter_map(|times| times.get(at).copied().flatten()).collect();
        let most = times.iter().copied().reduce(f64::max)?;
        Some([crate::stats::mean(&times), most])
    };
    let largest = fair.first().map_or(0, Vec::len);
    let ours = played(&link, 1);
    Expected {
        mean: [ours.mean(), mean_of_all(&ours, setup)],
        incomplete: ours.incomplete(),
        clairvoyant: alone(EgressOrder::ShortestRemaining, SEGMENT).mean(),
        fair: (0..largest).map(of_all).collect(),
    }
}

#[cfg(test)]
mod tests {
    use sim::uplink::Response;

    use super::*;

    #[test]
    fn loads_and_setups_are_read_as_they_are_written() {
        for text in ["W1", "W10", "1.2"] {
            assert_eq!(text.parse::<Load>().unwrap().to_string(), text);
        }
        for text in ["W0", "W11", "0", "much", "11"] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
        for text in ["A", "B150", "C15", "D", "E10", "F0.5", "F3", "H3", "I536", "J7"] {
            assert_eq!(text.parse::<Setup>().unwrap().to_string(), text);
        }
        assert_eq!("E".parse(), Ok(Setup::Persistent(5)));
        assert_eq!("F".parse(), Ok(Setup::FirstTimeout(500)));
        for (text, says) in [
            ("C0", "from 1 to"),
            ("D5", "one of"),
            ("F0", "seconds from 0.1"),
            ("Fast", "seconds from 0.1"),
            ("G", "cookies"),
            ("E0", "from 1 to"),
            ("A5", "one of"),
        ] {
            assert!(text.parse::<Setup>().unwrap_err().contains(says), "{text}");
        }
        assert!(variants_called(&["what".to_owned()]).unwrap_err().contains("SRPT, no aging, auto"));
    }

    #[test]
    fn a_lost_response_counts_with_what_its_user_waited() {
        let came = |response| Response { at: 0.0, bytes: 1, first_byte: None, response };
        let served = Served { responses: vec![came(Some(2.0)), came(None)], seconds: Vec::new() };
        let mean = |setup: &str| mean_of_all(&served, setup.parse().unwrap());
        assert!((mean("A") - 61.0).abs() < 1e-9 && (mean("H10") - 21.0).abs() < 1e-9);
    }

    #[test]
    fn a_workload_is_played_in_whole_periods() {
        let seconds = |load: &str, least| load.parse::<Load>().unwrap().whole(Duration::from_secs(least));
        assert_eq!(seconds("W1", 51), Duration::from_secs(100));
        assert_eq!(seconds("W2", 1), Duration::from_secs(20));
        assert_eq!(seconds("1.2", 51), Duration::from_secs(51));
    }
}
