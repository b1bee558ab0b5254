//! The keys of a scenario file.

use config::FieldDefault::{self, Derived, Required, Value};
use config::{Field, Form};

const fn field(
    key: &'static str,
    takes: &'static str,
    default: FieldDefault,
    doc: &'static str,
    reason: &'static str,
) -> Field {
    Field { key, form: Form::Any, takes, default, doc, reason, reloadable: false }
}

const TIME: &str = "a duration";
const DISTRIBUTION: &str = "a distribution of times";

/// The keys of `[scenario]`.
pub(crate) const SCENARIO: &[Field] = &[
    field(
        "seed",
        "0 to 2^53",
        Value("1"),
        "The seed of all chance. The same seed gives the same run on every machine.",
        "",
    ),
    field(
        "seeds",
        "1 to 1000",
        Value("1"),
        "How many runs each gate has, with `seed` and those that follow it. All gates meet the same ones.",
        "One is quick; several say how much is chance.",
    ),
    field(
        "duration",
        TIME,
        Value("\"10m\""),
        "For how long requests arrive.",
        "Long enough for most services; near saturation take hours.",
    ),
    field(
        "warm_up",
        "a duration below `duration`",
        Value("\"1m\""),
        "The time at the beginning that isn't measured.",
        "Estimates are learned and queues have filled by then.",
    ),
    field(
        "end",
        "`\"drained\"` or `\"cut\"`",
        Value("\"drained\""),
        "Whether the requests that are left at the end are served.",
        "Cut off, the longest would be missing from the means.",
    ),
    field(
        "in_time",
        "a duration, or `\"none\"`",
        Value("\"none\""),
        "The longest response time that counts as goodput.",
        "Only you know what your callers wait for.",
    ),
    field("tick", TIME, Value("\"1s\""), "The interval of the plots.", ""),
    field(
        "requests_max",
        "1 to 100000000",
        Value("20000000"),
        "The most requests of a run, tries again included.",
        "A request takes about a hundred bytes of memory.",
    ),
    field(
        "learning",
        "`true` or `false`",
        Value("true"),
        "Whether the gates learn what requests take, or keep what the types' `known` says.",
        "`false` shows what estimates made offline are worth.",
    ),
    field(
        "without_gate",
        "`true` or `false`",
        Value("true"),
        "Whether the service is also run without any gate.",
        "The comparison shows what a gate is worth.",
    ),
    field(
        "config",
        "a file, relative to this one",
        Derived("none: the gates stand in this file"),
        "A configuration of Gatekeeper whose gates are simulated unchanged.",
        "",
    ),
];

/// The keys of a `[[type]]`.
pub(crate) const TYPE: &[Field] = &[
    field("name", "a name, unique", Required, "The request type.", "It can't be guessed."),
    field(
        "service_time",
        DISTRIBUTION,
        Required,
        "The time that a request takes alone.",
        "It can't be guessed.",
    ),
    field(
        "weight",
        "0 to 1000000",
        Value("1"),
        "How much a request counts for the service's `collapse`.",
        "",
    ),
    field(
        "lock",
        "a name",
        Derived("none"),
        "The lock that a request needs, with `collapse = \"locks\"`.",
        "",
    ),
    field(
        "reads",
        "a list of names",
        Derived("none"),
        "The tables that a request locks in the `[application]` for reading, shared with other readers.",
        "",
    ),
    field("writes", "a list of names", Derived("none"), "The tables that a request locks there alone.", ""),
    field("known", TIME, Derived("none: the gate learns it"), "The estimate with which the gate begins.", ""),
];

/// The keys of `[sweep]`.
pub(crate) const SWEEP: &[Field] = &[
    field(
        "clients",
        "a list of numbers from 1 to 1000000: `[50, 100, 200]`",
        Derived("none"),
        "How many clients there are in all, for sources with `arrivals = \"closed\"`, which share them by their `clients`.",
        "",
    ),
    field(
        "utilization",
        "a list of numbers from 0: `[0.5, 0.9, 1.2]`",
        Derived("none"),
        "How many requests arrive, as a part of what the service can do of the mix at full speed: `\"poisson\"` or `\"regular\"` arrivals, from one source with a `mix`.",
        "",
    ),
    field(
        "cores",
        "a list of numbers from 1 to 10000: `[1, 2, 4]`",
        Derived("none"),
        "How many cores the service has. The load of each core stays the same: the rates of open arrivals and the \
         numbers of clients grow in proportion. What is replayed stays the same.",
        "",
    ),
];

/// The keys of `[goal]`.
pub(crate) const GOAL: &[Field] = &[
    field(
        "mean_of_ungated",
        "a number",
        Derived("no such goal"),
        "The largest mean over all requests, as a multiple of the mean without a gate. A request that is refused or \
         given up counts with the time that its client waited.",
        "With 1.05 a gate does no harm.",
    ),
    field(
        "mean_of_fixed",
        "a number",
        Derived("no such goal"),
        "The largest mean over all requests, as a multiple of that with the gate `fixed`.",
        "A gate should find what a search by hand finds.",
    ),
    field(
        "served_of_ungated",
        "a number",
        Derived("no such goal"),
        "The fewest answers per second, as a part of those without a gate.",
        "",
    ),
    field(
        "served_of_fixed",
        "a number",
        Derived("no such goal"),
        "The fewest answers per second, as a part of those of the gate `fixed`.",
        "With 0.97 the gate has found the best number.",
    ),
    field(
        "whole_of_ungated",
        "a number",
        Derived("no such goal"),
        "The fewest visits (`then` of a source) that are answered whole, as a part of those that are answered whole \
         without a gate.",
        "",
    ),
    field(
        "whole_of_fixed",
        "a number",
        Derived("no such goal"),
        "The fewest visits that are answered whole, as a part of those that are answered whole with the gate that is \
         named `fixed`.",
        "",
    ),
    field(
        "lost",
        "a number from 0 to 1",
        Derived("no such goal"),
        "The largest part of the requests that are refused or given up.",
        "",
    ),
    field(
        "means",
        "a table: `{ report = \"3s\" }`",
        Derived("no such goal"),
        "The longest mean over all requests of some types.",
        "",
    ),
];

/// The keys of a `[[source]]`.
pub(crate) const SOURCE: &[Field] = &[
    field(
        "class",
        "a name",
        Value("\"default\""),
        "The service class of its requests. A gate that has no `[[gate.class]]` of this name takes them for its default class.",
        "In a scenario a gate's class needs no rules.",
    ),
    field(
        "arrivals",
        "`\"poisson\"`, `\"regular\"`, `\"on-off\"`, `\"closed\"` or `\"replay\"`",
        Value("\"poisson\""),
        "How requests come. Closed: each of `clients` thinks, sends, and waits for the answer. All others are open.",
        "Many independent callers look like that.",
    ),
    field(
        "rate",
        "a number of requests per second, or steps: `[[\"0s\", 100], [\"1m\", 200]]`",
        Derived("none: `utilization` says it"),
        "How many arrive (Poisson, regular).",
        "Either this or `utilization`.",
    ),
    field(
        "utilization",
        "a number (1 is all that the service can do), or steps",
        Derived("none: `rate` says it"),
        "How many arrive, as a part of what the service can do of this mix at full speed.",
        "Saturation is then at 1, whatever the types take.",
    ),
    field("on_rate", "requests per second", Value("0"), "The rate of the first phase (on-off).", ""),
    field("on_lasts", DISTRIBUTION, Value("\"10s\""), "How long that phase lasts.", ""),
    field("off_rate", "requests per second", Value("0"), "The rate of the other phase (on-off).", ""),
    field("off_lasts", DISTRIBUTION, Value("\"10s\""), "How long that phase lasts.", ""),
    field("clients", "1 to 1000000", Value("100"), "How many clients there are (closed).", ""),
    field(
        "think",
        DISTRIBUTION,
        Value("\"exponential 7s\""),
        "How long a client thinks before each request (closed).",
        "The mean of TPC-W's customers.",
    ),
    field(
        "think_max",
        "a duration, or `\"none\"`",
        Value("\"none\""),
        "The longest that a client thinks.",
        "TPC-W cuts at ten times the mean.",
    ),
    field(
        "replay",
        "a CSV file, relative to this one: seconds, type, and if known the seconds that it took alone",
        Derived("none"),
        "The requests as they were recorded.",
        "",
    ),
    field(
        "mix",
        "a table: `{ read = 95, report = 5 }`",
        Derived("all types alike"),
        "The share of each type; a type that isn't named has none.",
        "It can't be guessed.",
    ),
    field(
        "sessions",
        "a table: `{ first = \"home\", lasts = \"exponential 15m\", next = { home = { search = 2, home = 1 }, … } }`, or a file with these three keys, relative to this one",
        Derived("none: each request is drawn from `mix`"),
        "A closed loop whose next request depends on the last: for each type the weights of those that may follow. A session begins with `first`, and again after `lasts`, if that is set. With `stays = true` a client without an answer stays where it was.",
        "Clients that go from page to page aren't independent draws.",
    ),
    field(
        "then",
        "a table of whole numbers: `{ file = 4 }`",
        Derived("none: a client sends one request"),
        "What a client asks for at once when its request of the `mix` is answered: a number of requests for each of \
         these types, which the `mix` must not have. A visit is whole when all its requests are answered. Not with \
         `\"closed\"` and `\"replay\"`.",
        "A page needs its files.",
    ),
    field("from", TIME, Value("\"0s\""), "When these clients begin.", ""),
    field(
        "joining",
        TIME,
        Value("\"0s\""),
        "Closed: they come one after another, each at a random instant within this time.",
        "",
    ),
    field("until", "a duration, or `\"none\"`", Value("\"none\""), "When they end.", ""),
    field(
        "timeout",
        "a duration, or `\"none\"`",
        Value("\"none\""),
        "How long a client waits for its answer before it gives up.",
        "",
    ),
    field(
        "abandoned",
        "`\"canceled\"` or `\"runs-on\"`",
        Value("\"canceled\""),
        "What becomes of a request whose client has given up, in flight or waiting in an `[application]`: `runs-on` performs it all the same.",
        "The gate passes a cancellation on.",
    ),
    field(
        "retries",
        "0 to 1000",
        Value("0"),
        "How often a client tries again after it gave up or was refused.",
        "Retries make overload worse: say if yours do.",
    ),
    field(
        "back_off",
        TIME,
        Value("\"1s\""),
        "How long before the first further try; it doubles with each.",
        "What most libraries do.",
    ),
    field(
        "deadline",
        "a duration, or `\"none\"`",
        Value("\"none\""),
        "The deadline that the gate is told, from a request's arrival.",
        "",
    ),
];

/// The keys of `[application]`.
pub(crate) const APPLICATION: &[Field] = &[
    field(
        "connections",
        "1 to 1000000",
        Value("20"),
        "The application's connection pool: the most requests at the gate and in the service. Others wait in order of arrival.",
        "A pool of the usual size.",
    ),
    field(
        "timeout",
        "a duration, or `\"none\"`",
        Value("\"5s\""),
        "How long a request waits for its locks, and then for a connection, before it is turned away.",
        "Most pools give up.",
    ),
];

/// The keys of `[upstream]`.
pub(crate) const UPSTREAM: &[Field] = &[
    field(
        "service",
        "`\"sharing\"`, `\"fifo\"`, `\"shortest-first\"` or `\"shortest-remaining\"`",
        Value("\"sharing\""),
        "How the service works on what is in flight: all at once (`cores` shared), or `cores` at a time and the others in this order. The last two know true service times: yardsticks.",
        "A database without contention shares its cores.",
    ),
    field("cores", "1 to 10000", Value("1"), "How many cores, or servers.", ""),
    field(
        "tells_cores",
        "1 to 10000",
        Derived("none"),
        "How many cores the service tells the gates, as PostgreSQL may. A gate with a `long_limit` of its own doesn't ask.",
        "",
    ),
    field(
        "at_once",
        "1 to 1000000, or `\"none\"`",
        Value("\"none\""),
        "The most that it serves at once (sharing only); the others wait inside, in order of arrival, and count as in flight.",
        "",
    ),
    field(
        "collapse",
        "`\"none\"`, `\"cliff\"`, `\"deadlocks\"`, `\"locks\"`, `\"memory\"`, `\"thrashing\"` or `\"measured\"`",
        Value("\"none\""),
        "How it loses speed when too much is in flight (sharing only).",
        "",
    ),
    field(
        "plateau",
        "0 to 1000000",
        Value("64"),
        "Cliff: the most weight at full speed.",
        "Measured on a hot row.",
    ),
    field(
        "after",
        "above 0, at most 1",
        Value("0.2"),
        "Cliff, memory: the part of the speed that is left.",
        "",
    ),
    field("best", "0 to 1000000", Value("2"), "Deadlocks: the most weight without any.", ""),
    field(
        "worst",
        "0 to 1000000",
        Value("8"),
        "Deadlocks: the weight from which the speed is at its least.",
        "",
    ),
    field("factor", "a number from 1", Value("40"), "Deadlocks: by what the speed is divided then.", ""),
    field(
        "handover",
        "a number from 0",
        Value("0.05"),
        "Locks: how much each waiting request slows the holder.",
        "Fits what was measured at 100 clients.",
    ),
    field(
        "burn",
        "a number from 0",
        Value("0.2"),
        "Locks: the part of a core that each waiting request burns.",
        "The processor is busy when a hot row collapses.",
    ),
    field("limit", "0 to 1000000", Value("64"), "Memory: the most weight that fits.", ""),
    field(
        "recovers_below",
        "0 to 1000000, or `\"none\"`",
        Value("\"none\""),
        "Memory: the weight below which the service is fast again.",
        "A server that was killed isn't.",
    ),
    field(
        "half",
        "a number above 0",
        Value("40"),
        "Thrashing: the weight at which half of the speed is lost.",
        "A peak near two requests for each core.",
    ),
    field(
        "measured",
        "pairs of weight in flight and a factor above 0: `[[1, 1.0], [50, 0.9], [100, 0.4]]`",
        Value("[]"),
        "Measured: the factor of the speed by the weight in flight; straight lines between the points.",
        "",
    ),
    field("power", "0 to 100", Value("2"), "Thrashing: how steeply.", ""),
    field(
        "speed",
        "steps: `[[\"5m\", 0.5], [\"6m\", 1]]`",
        Value("[]"),
        "The factor of the service's speed from each time on. A stall is 0, drift is many small steps.",
        "",
    ),
    field(
        "round_trip",
        TIME,
        Value("\"0s\""),
        "How long an answer is under way. The request is in flight for so much longer and keeps no core busy.",
        "",
    ),
    field(
        "input_output",
        "a number from 0",
        Value("0"),
        "For each second on a core, so many seconds of waiting for something else, such as a disk.",
        "",
    ),
    field(
        "conflicts",
        "points: `[[2, 0.3], [5, 0.6]]`",
        Value("[]"),
        "The part of the requests that end as conflicts, by the number in flight; straight lines between the points. A client hears of a conflict when the request ends, and tries again at once.",
        "",
    ),
];
