//! Goals of service classes on a running gate for HTTP, before a site that serves two requests at a time.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

#[path = "http_goals/group.rs"]
mod group;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    clients: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn start(port: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let paths = ["/slow/gold", "/slow/lead"].into_iter().flat_map(|path| [path; CLIENTS]);
        let client = |path: &'static str| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(ask(port, path, &[]).map(|told| told.status), Some(200));
                }
            })
        };
        let clients = paths.map(client).collect();
        Self { is_over, clients }
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
    assert!(weight(&gate, "gold") > weight(&gate, "lead"), "{}", gate.status()["classes"]);
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
    let gatekeeper = std::process::Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    let checked = { gatekeeper }.arg("check").arg(file.path()).output().expect("it runs");
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
    let heir = gate.succeed().expect("it takes over");
    until("the first gate gives the weight back", async || gold.weight() == former).await;
    until("the second gate shows it", async || of(&heir, "gold")["processor"]["weight"] == former).await;
}
