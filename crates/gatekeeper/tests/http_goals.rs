//! Goals of service classes on a running gate for HTTP, before a site that serves two requests at a time.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

#[path = "http_goals/group.rs"]
mod group;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use group::Group;
use support::origin::{Origin, ask};
use support::{Gate, until};

/// The clients of each class. The site does 80 requests a second at most, so that with equal shares each
/// takes 200 ms.
const CLIENTS: usize = 8;

fn lines(gold: &str, lead: &str) -> Vec<String> {
    let classes = format!(
        "[[gate.class]]\nname = \"gold\"\npath = \"/slow/gold\"\n{gold}\n\
         [[gate.class]]\nname = \"lead\"\npath = \"/slow/lead\"\n{lead}\n"
    );
    ["protocol = \"http\"", "connections = 2", "long_limit = 0", "goal_tick = \"100ms\"", &classes]
        .map(str::to_owned)
        .to_vec()
}

/// Clients that ask again and again until they are dropped.
struct Crowd {
    is_over: Arc<AtomicBool>,
    /// How long each request of gold took.
    took: Arc<Mutex<Vec<Duration>>>,
    clients: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn start(port: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let paths = ["/slow/gold", "/slow/lead"].into_iter().flat_map(|path| [path; CLIENTS]);
        let took = Arc::new(Mutex::new(Vec::new()));
        let client = |path: &'static str| {
            let (is_over, took) = (Arc::clone(&is_over), Arc::clone(&took));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    assert_eq!(ask(port, path, &[]).map(|told| told.status), Some(200));
                    if path.ends_with("gold") {
                        took.lock().expect("no panic").push(begun.elapsed());
                    }
                }
            })
        };
        let clients = paths.map(client).collect();
        Self { is_over, took, clients }
    }

    /// How long the last requests of gold took.
    fn last_of_gold(&self, count: usize) -> Vec<Duration> {
        let took = self.took.lock().expect("no panic");
        took[took.len().saturating_sub(count)..].to_vec()
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("every request was served");
        }
    }
}

fn of(gate: &Gate, class: &str) -> Value {
    let status = gate.status();
    let classes = status["classes"].as_array().expect("a list");
    classes.iter().find(|known| known["class"] == class).expect("it is known").clone()
}

fn weight(gate: &Gate, class: &str) -> f64 {
    of(gate, class)["weight"].as_f64().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn goals_that_a_reload_reverses_are_kept_again_and_the_log_explains_each_move() {
    let origin = Origin::start("site").await;
    let (tight, loose) = ("goal = \"170ms\"", "goal = \"700ms\"");
    let gate = Gate::start(origin.address.port(), &lines(tight, loose));
    let crowd = Crowd::start(gate.port());
    let keeps = async |class: &str, other: &str| {
        let kept = [class, other].iter().all(|class| of(&gate, class)["standing"] == "kept");
        kept && weight(&gate, class) > weight(&gate, other)
    };
    until("gold keeps its goal, and lead too", async || keeps("gold", "lead").await).await;
    let told = |class: &str, other: &str| {
        let (raised, why) =
            (format!("class {class} raised "), format!("over its goal 170 ms, taken from {other}"));
        gate.log().lines().any(|line| line.contains(&raised) && line.contains(" % → ") && line.contains(&why))
    };
    assert!(told("gold", "lead"), "{}", gate.log_tail());
    assert!(!told("lead", "gold"), "{}", gate.log_tail());

    gate.reconfigure(&lines(loose, tight));
    gate.signal("HUP");
    until("lead keeps its goal, and gold too", async || keeps("lead", "gold").await).await;
    assert!(told("lead", "gold"), "{}", gate.log_tail());
    crowd.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_whose_goal_is_a_throughput_gets_it_from_one_without_a_goal() {
    let origin = Origin::start("site").await;
    // By weights gold would have 16 of the 80 requests a second.
    let gate = Gate::start(origin.address.port(), &lines("goal = \"40/s\"", "weight = 4"));
    let crowd = Crowd::start(gate.port());
    let told = |line: &str| line.contains("class gold raised ") && line.contains("/s under its goal 40/s");
    until("gold gets more", async || gate.log().lines().any(told)).await;
    let served = || of(&gate, "gold")["dispatched_total"].as_f64().expect("a number");
    until("so many are served", async || {
        let (before, begun) = (served(), Instant::now());
        tokio::time::sleep(Duration::from_secs(1)).await;
        served() - before >= 36.0 * begun.elapsed().as_secs_f64()
    })
    .await;
    until("its goal is kept", async || of(&gate, "gold")["standing"] == "kept").await;
    // It began with a quarter of lead's.
    assert!(2.0 * weight(&gate, "gold") > weight(&gate, "lead"), "{}", gate.status()["classes"]);
    crowd.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn goals_that_cannot_be_met_together_are_told_and_the_more_important_class_keeps_its_own() {
    let origin = Origin::start("site").await;
    let goals = ("goal = \"170ms\"\nimportance = 2", "goal = \"170ms\"\nimportance = 1");
    let gate = Gate::start(origin.address.port(), &lines(goals.0, goals.1));
    let metric = |class: &str, is_out: u8| {
        let line = format!("gatekeeper_class_goal_out_of_reach{{gate=\"http\",class=\"{class}\"}} {is_out}");
        gate.metrics().lines().any(|told| told.trim_end_matches(".0") == line)
    };
    let begun = Instant::now();
    let crowd = Crowd::start(gate.port());
    until("lead's goal is given up", async || of(&gate, "lead")["standing"] == "out of reach").await;
    // An interval is twenty ticks.
    let intervals = begun.elapsed().as_secs_f64() / 2.0;
    println!("told after {intervals:.1} intervals");
    assert!(intervals <= 3.0, "{intervals:.1}");
    until("it is in the log", async || {
        gate.log().contains("which can't be met beside more important classes")
    })
    .await;
    let line = gate.log().lines().find(|line| line.contains("can't be met")).map(str::to_owned);
    assert!(line.as_ref().is_some_and(|line| line.contains("class lead: mean")), "{line:?}");
    assert!(metric("lead", 1), "{}", gate.metrics());
    let mut said = String::new();
    until("check says it of the running gate", async || {
        said = checked(&gate.config());
        said.contains("class \"lead\": goal = \"170ms\": out of reach on the running gate (it was ")
    })
    .await;
    assert!(!said.contains("class \"gold\""), "{said}");
    until("gold keeps its own", async || of(&gate, "gold")["standing"] == "kept").await;
    assert!(metric("gold", 0), "{}", gate.metrics());
    assert!(weight(&gate, "gold") > weight(&gate, "lead"), "{}", gate.status()["classes"]);
    crowd.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_group_follows_its_classs_share_and_has_its_weight_again_afterwards() {
    let groups = [Group::make("gold"), Group::make("lead")];
    let [Some(gold), Some(lead)] = groups else { return };
    let busy = gold.keep_busy();
    let origin = Origin::start("site").await;
    let with = |group: &Group, goal: &str| format!("goal = \"{goal}\"\ncgroup = \"{}\"", group.path());
    let (tight, loose) = (with(&gold, "170ms"), with(&lead, "700ms"));
    let mut gate = Gate::start(origin.address.port(), &lines(&tight, &loose));
    let former = gold.weight();
    assert_eq!(lead.weight(), former);
    let crowd = Crowd::start(gate.port());
    until("gold's group has more, and lead's less", async || {
        gold.weight() > former && lead.weight() < former
    })
    .await;
    assert!(gate.log().contains("of its control group"), "{}", gate.log_tail());
    until("its own accounting is shown", async || {
        let told = of(&gate, "gold")["processor"].clone();
        told["weight"] == gold.weight() && told["used_seconds_total"].as_f64().is_some_and(|used| used > 0.0)
    })
    .await;
    let shown = gate.metrics();
    assert!(shown.contains("class_processor_weight{gate=\"http\",class=\"gold\"}"), "{shown}");
    assert!(shown.contains("class_processor_seconds_total{gate=\"http\",class=\"gold\"}"), "{shown}");

    gate.reconfigure(&lines("goal = \"170ms\"", &loose));
    gate.signal("HUP");
    until("gold's group has its weight again", async || gold.weight() == former).await;
    assert!(lead.weight() < former, "lead's key stays");
    crowd.end();
    gate.signal("TERM");
    assert!(gate.wait().success());
    assert_eq!(lead.weight(), former, "{}", gate.log_tail());
    drop(busy);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_percentile_is_kept_as_clients_see_it() {
    let origin = Origin::start("site").await;
    // With equal shares nineteen in twenty take more than 200 ms.
    let gate = Gate::start(origin.address.port(), &lines("goal = \"p95 150ms\"", "goal = \"700ms\""));
    let crowd = Crowd::start(gate.port());
    until("gold gets more", async || {
        let told = |line: &str| line.contains("class gold raised ") && line.contains(": p95 ");
        gate.log().lines().any(|line| told(line) && line.contains("over its goal 150 ms"))
    })
    .await;
    until("its goal is kept", async || of(&gate, "gold")["standing"] == "kept").await;
    assert!(weight(&gate, "gold") > weight(&gate, "lead"), "{}", gate.status()["classes"]);
    until("so do clients see it", async || {
        let mut last = crowd.last_of_gold(200);
        last.sort_unstable();
        last.len() == 200 && last[190] <= Duration::from_millis(185)
    })
    .await;
    crowd.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_that_goals_have_found_go_to_a_successor_and_into_the_state_file() {
    let origin = Origin::start("site").await;
    let directory = tempfile::tempdir().expect("a directory");
    let state = format!("state_file = {:?}", directory.path().join("state.json"));
    let with_state = || [vec![state.clone()], lines("goal = \"170ms\"", "goal = \"700ms\"")].concat();
    let gate = Gate::start(origin.address.port(), &with_state());
    let crowd = Crowd::start(gate.port());
    until("gold gets more", async || weight(&gate, "gold") > weight(&gate, "lead")).await;
    crowd.end();
    until("nothing moves any more", async || {
        ["gold", "lead"].iter().all(|class| of(&gate, class)["standing"] == "idle")
    })
    .await;
    let found = ["gold", "lead"].map(|class| weight(&gate, class));
    let mut heir = gate.succeed().expect("it takes over");
    assert_eq!(["gold", "lead"].map(|class| weight(&heir, class)), found);
    heir.signal("TERM");
    assert!(heir.wait().success());
    let next = Gate::start(origin.address.port(), &with_state());
    assert_eq!(["gold", "lead"].map(|class| weight(&next, class)), found, "{}", next.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_goals_groups_have_the_fixed_weights_and_that_of_the_background_is_idle() {
    let groups = [Group::make("three"), Group::make("one"), Group::make("left")];
    let [Some(gold), Some(lead), Some(left)] = groups else { return };
    let (busy, former) = (left.keep_busy(), left.weight());
    let origin = Origin::start("site").await;
    let with = |group: &Group, how: &str| format!("{how}\ncgroup = \"{}\"", group.path());
    let bots = |how: &str| {
        let bots = with(&left, how);
        let lead = with(&lead, "weight = 1");
        format!("{lead}\n[[gate.class]]\nname = \"bots\"\npath = \"/slow/bots\"\n{bots}")
    };
    let gold_lines = with(&gold, "weight = 4");
    let mut gate = Gate::start(origin.address.port(), &lines(&gold_lines, &bots("background = true")));
    // With the default class the weights are 4, 1 and 1: the mean is 2.
    until("both follow", async || (gold.weight(), lead.weight()) == (2 * former, former / 2)).await;
    match left.is_idle() {
        Some(_) => until("the third is idle", async || left.is_idle() == Some(true)).await,
        None => until("the third has the least weight", async || left.weight() <= 2).await,
    }
    until("it is shown", async || of(&gate, "bots")["processor"]["used_seconds_total"].is_f64()).await;
    assert!(of(&gate, "bots")["processor"]["problem"].is_null(), "{}", gate.status()["classes"]);
    assert!(of(&gate, "bots")["weight"].is_null(), "it has none");
    assert_eq!(ask(gate.port(), "/slow/bots", &[]).map(|told| told.status), Some(200));

    gate.reconfigure(&lines(&gold_lines, &bots("weight = 2")));
    gate.signal("HUP");
    until("it isn't in the background any more", async || {
        (left.is_idle() != Some(true), left.weight()) == (true, former)
    })
    .await;
    gate.reconfigure(&lines(&gold_lines, &bots("background = true")));
    gate.signal("HUP");
    until("it is again", async || left.is_idle() == Some(true) || left.weight() <= 2).await;
    gate.signal("TERM");
    assert!(gate.wait().success());
    assert!(left.is_idle() != Some(true), "{}", gate.log_tail());
    assert_eq!([&gold, &lead, &left].map(Group::weight), [former; 3], "{}", gate.log_tail());
    drop(busy);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_group_only_the_queue_is_adapted_and_check_says_why() {
    let origin = Origin::start("site").await;
    let tight = "goal = \"170ms\"\ncgroup = \"/gatekeeper-test/nowhere\"";
    let gate = Gate::start(origin.address.port(), &lines(tight, "goal = \"700ms\""));
    until("it is told", async || gate.log().contains("only the class's queue is adapted")).await;
    assert!(of(&gate, "gold")["processor"]["problem"].is_string(), "{}", gate.status()["classes"]);
    let crowd = Crowd::start(gate.port());
    until("the queue is adapted", async || weight(&gate, "gold") > weight(&gate, "lead")).await;
    crowd.end();
    let said = check(tight, "weight = 1");
    assert!(said.contains("class \"gold\": cgroup = \"/gatekeeper-test/nowhere\": only its queue"), "{said}");
    assert!(!said.contains("several groups"), "{said}");
    let said = check(tight, "weight = 1\ncgroup = \"/gatekeeper-other/lead\"");
    assert!(said.contains("in several groups (/gatekeeper-other, /gatekeeper-test)"), "{said}");
}

/// What `check` says of a gate with these classes.
fn check(gold: &str, lead: &str) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!("[[gate]]\nupstream = \"a:1\"\n{}", lines(gold, lead).join("\n"));
    std::fs::write(file.path(), text).expect("it is written");
    checked(file.path())
}

/// What `check` says of a file besides what is in force.
fn checked(file: &std::path::Path) -> String {
    let gatekeeper = std::process::Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    let checked = { gatekeeper }.arg("check").arg(file).output().expect("it runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_group_of_two_gates_is_told_and_is_the_seconds_once_the_first_has_ended() {
    let Some(gold) = Group::make("both") else { return };
    let origin = Origin::start("site").await;
    let tight = lines(&format!("goal = \"170ms\"\ncgroup = \"{}\"", gold.path()), "goal = \"700ms\"");
    let mut first = Gate::start(origin.address.port(), &tight);
    until("the first has it", async || of(&first, "gold")["processor"]["weight"].is_u64()).await;
    let second = Gate::start(origin.address.port(), &tight);
    until("the second says so", async || second.log().contains("another gate sets this group's weight"))
        .await;
    assert!(of(&second, "gold")["processor"]["problem"].is_string(), "{}", second.status()["classes"]);
    first.signal("TERM");
    assert!(first.wait().success());
    until("it is the second's", async || of(&second, "gold")["processor"]["weight"].is_u64()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_finds_the_weight_that_a_control_group_had_before() {
    let Some(gold) = Group::make("heir") else { return };
    let origin = Origin::start("site").await;
    let tight = format!("goal = \"170ms\"\ncgroup = \"{}\"", gold.path());
    let gate = Gate::start(origin.address.port(), &lines(&tight, "goal = \"700ms\""));
    let former = gold.weight();
    let crowd = Crowd::start(gate.port());
    until("its group has more", async || gold.weight() > former).await;
    crowd.end();
    let mut heir = gate.succeed().expect("it takes over");
    // Once the first has given the weight back, the second goes on with the share that the first had found.
    let shown = || of(&heir, "gold")["processor"]["weight"].as_u64();
    until("it is the second's", async || shown().is_some_and(|weight| weight > former)).await;
    heir.signal("TERM");
    assert!(heir.wait().success());
    assert_eq!(gold.weight(), former, "{}", heir.log_tail());
}
