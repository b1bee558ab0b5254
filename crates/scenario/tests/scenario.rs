//! Scenario files: what they mean, and everything that is wrong with one.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use admission::{Capacity, Controller, Order, Rejection, Work};
use scenario::{Experiment, WITHOUT_GATE};
use sim::{
    Abandoned, Application, Arrivals, Collapse, Distribution, End, Mix, Rate, Service, Sessions, TableLock,
    controllers,
};
use tempfile::TempDir;

const SMALL: &str = r#"
[[type]]
name = "read"
service_time = "exponential 1ms"

[[source]]
rate = 100
"#;

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn read(text: &str) -> Result<Experiment, Vec<String>> {
    let directory = directory(&[("s.toml", text)]);
    scenario::load(&directory.path().join("s.toml")).map_err(|errors| {
        let place = format!("{}/", directory.path().display());
        errors.to_string().replace(&place, "").lines().map(str::to_owned).collect()
    })
}

#[test]
fn a_type_and_a_source_are_enough() {
    let experiment = read(SMALL).unwrap();
    assert_eq!(experiment.seeds, 1);
    let [(name, scenario)] = &experiment.variants[..] else { panic!("{experiment:?}") };
    assert_eq!(name, WITHOUT_GATE);
    assert_eq!((scenario.duration, scenario.warm_up), (Duration::from_secs(600), Duration::from_secs(60)));
    assert_eq!(scenario.sources[0].arrivals, Arrivals::Poisson(Rate::constant(100.0)));
    assert_eq!(scenario.upstream.service, Service::Sharing { cores: 1, collapse: Collapse::None });
}

#[test]
fn everything_can_be_said() {
    let text = r#"
[scenario]
seed = 7
seeds = 3
duration = "2h"
warm_up = "0s"
end = "cut"
in_time = "1s"
tick = "500ms"
without_gate = false

[[type]]
name = "read"
service_time = "lognormal 1ms cv 0.5"

[[type]]
name = "order"
service_time = "2ms"
weight = 3
lock = "item"

[[source]]
utilization = [["0s", 0.5], ["1m", 1.5]]
mix = { read = 3, order = 1 }
timeout = "10s"
abandoned = "runs-on"
retries = 2
back_off = "100ms"
deadline = "5s"
from = "1s"
until = "1h"

[[source]]
arrivals = "closed"
clients = 5
think = "7s"
think_max = "70s"
mix = { order = 1 }

[upstream]
cores = 2
collapse = "locks"
handover = 0.1
speed = [["10m", 0.5], ["11m", 1]]
round_trip = "1ms"

[[gate]]
name = "found"
capacity = "auto"

[[gate]]
name = "paper"
capacity = "100ms"
long_limit = "none"
order = "fifo"
"#;
    let experiment = read(text).unwrap();
    assert_eq!(experiment.seeds, 3);
    let [(found, first), (paper, second)] = &experiment.variants[..] else { panic!("{experiment:?}") };
    assert_eq!((found.as_str(), paper.as_str()), ("found", "paper"));
    assert!(matches!(first.policy.capacity, Capacity::Found(_)));
    assert_eq!(first.policy.long_limit, Some(admission::LongLimit::FOUND), "nobody tells of cores");
    assert_eq!(second.policy.capacity, Capacity::Fixed(Work::from_nanos(100_000_000)));
    assert_eq!((second.policy.long_limit, second.policy.order), (None, Order::Fifo));
    assert_eq!(first.types[1].service_time, Distribution::Fixed(Duration::from_millis(2)));
    assert_eq!((first.types[1].weight, first.types[1].lock, first.types[0].lock), (3, Some(0), None));
    assert_eq!((first.seed, first.end), (7, End::Cut));
    let source = &first.sources[0];
    // 3 reads of 1 ms for an order of 2 ms: two cores can do 1600 a second.
    let rate = Rate::steps([(Duration::ZERO, 800.0), (Duration::from_secs(60), 2400.0)]);
    assert_eq!(source.arrivals, Arrivals::Poisson(rate));
    assert_eq!(source.mix, Mix::Shares(vec![3.0, 1.0]));
    assert_eq!((source.patience.retries, source.patience.abandoned), (2, Abandoned::RunsOn));
    assert_eq!(first.sources[1].mix, Mix::Shares(vec![0.0, 1.0]));
}

#[test]
fn a_gate_of_a_scenario_takes_what_the_laboratory_has() {
    for maker in controllers::CAPACITIES {
        let text = format!("{SMALL}\n[[gate]]\nname = \"a\"\ncapacity = \"{}\"\n", maker.name);
        let found = Capacity::Found(Controller::Other(maker));
        assert_eq!(read(&text).unwrap().variants[1].1.policy.capacity, found);
    }
    let codel = "[[gate]]\nname = \"a\"\nrejection = \"codel\"\n";
    let policy = &read(&format!("{SMALL}\n{codel}")).unwrap().variants[1].1.policy;
    assert_eq!(policy.rejection, Rejection::Other(controllers::CODEL));
    // Before a real service it is as in a configuration.
    let real = read(&format!("{SMALL}\n{codel}upstream = \"db:5432\"\n")).unwrap_err().concat();
    assert!(real.contains("went to the laboratory, since it only serves to compare"), "{real}");
}

#[test]
fn a_configuration_is_simulated_as_it_is() {
    let config = "[[gate]]\nname = \"shop\"\nupstream = \"db:5432\"\nconnections = 7\nlong_limit = 3\nmax_clients = 50\n";
    let scenario = format!("[scenario]\nconfig = \"g.toml\"\n{SMALL}");
    let files = directory(&[("s.toml", &scenario), ("g.toml", config)]);
    let experiment = scenario::load(&files.path().join("s.toml")).unwrap();
    let (name, scenario) = &experiment.variants[1];
    assert_eq!(
        (name.as_str(), scenario.policy.connections, scenario.policy.long_limit),
        ("shop", 7, Some(admission::LongLimit::Fixed(3)))
    );
    let world = config::load(&files.path().join("g.toml")).unwrap();
    assert_eq!(world.gates[0].policy, scenario.policy, "what was simulated is what runs");

    let pasted = read(&format!("{SMALL}\n{config}")).unwrap();
    assert_eq!(pasted.variants[1].1.policy, scenario.policy);

    fs::write(files.path().join("g.toml"), "[[gate]]\nupstream = \"db\"\nconections = 7\n").unwrap();
    let said = scenario::load(&files.path().join("s.toml")).unwrap_err().to_string();
    assert!(said.contains("g.toml:3: gate: conections: there is no such key; did you mean"), "{said}");
}

#[test]
fn sessions_are_read_by_the_names_of_the_types() {
    let types = "[[type]]\nname = \"home\"\nservice_time = \"1ms\"\n[[type]]\nname = \"search\"\nservice_time = \"2ms\"\n";
    let with = |next: &str| {
        let source = "[[source]]\narrivals = \"closed\"\n";
        format!("{types}{source}sessions = {{ first = \"home\", lasts = \"15m\", next = {next} }}\n")
    };
    let experiment = read(&with("{ home = { home = 1, search = 3 }, search = { home = 1 } }")).unwrap();
    let lasts = Some(Distribution::Fixed(Duration::from_secs(900)));
    let next = vec![vec![1.0, 3.0], vec![1.0, 0.0]];
    let sessions = Sessions { first: 0, next, lasts, stays: false };
    assert_eq!(experiment.variants[0].1.sources[0].mix, Mix::Sessions(sessions));
    for (next, why) in [
        ("{ home = { search = 1 } }", "leads to \"search\", but doesn't say what comes next after it"),
        ("{ hom = { search = 1 } }", "names the type \"hom\", which isn't there; did you mean `home`?"),
        ("{}", "says of no type what comes next"),
    ] {
        let said = read(&with(next)).unwrap_err().join("\n");
        assert!(said.contains("s.toml:9: source 1: sessions = ") && said.contains(why), "{said}");
    }
    let open = with("{ home = { home = 1 } }").replace("arrivals = \"closed\"", "rate = 1");
    assert!(read(&open).unwrap_err()[0].contains("only the clients of a closed loop have sessions"));
}

#[test]
fn an_application_locks_tables_in_the_order_of_their_names() {
    let locking = |keys: &str| SMALL.replace("[[source]]", &format!("{keys}\n[application]\n[[source]]"));
    let experiment = read(&locking("reads = [\"item\", \"author\"]\nwrites = [\"cart\"]")).unwrap();
    let scenario = &experiment.variants[0].1;
    let locks = [(0, false), (1, true), (2, false)].map(|(table, written)| TableLock { table, written });
    assert_eq!(scenario.types[0].tables, locks);
    let usual = Application { connections: 20, timeout: Some(Duration::from_secs(5)) };
    assert_eq!(scenario.application, Some(usual));
    assert_eq!(read(SMALL).unwrap().variants[0].1.application, None);
    let said = read(&locking("reads = [\"item\"]\nwrites = [\"item\"]")).unwrap_err();
    assert!(
        said[0].starts_with("s.toml:6: type \"read\": reads = [\"item\"]: names \"item\", as `writes` does"),
        "{said:?}"
    );
}

#[test]
fn sessions_may_stand_in_a_file_of_their_own() {
    let text =
        SMALL.replace("rate = 100", "arrivals = \"closed\"\nsessions = \"pages.toml\"\njoining = \"20s\"");
    let files = directory(&[
        ("s.toml", &text),
        ("pages.toml", "first = \"read\"\nstays = true\n[next]\nread = { read = 1 }\n"),
    ]);
    let experiment = scenario::load(&files.path().join("s.toml")).unwrap();
    let source = &experiment.variants[0].1.sources[0];
    let sessions = Sessions { first: 0, next: vec![vec![1.0]], lasts: None, stays: true };
    assert_eq!(source.mix, Mix::Sessions(sessions));
    assert_eq!(source.joining, Duration::from_secs(20));
    fs::write(files.path().join("pages.toml"), "first = \"write\"\n[next]\n").unwrap();
    let said = scenario::load(&files.path().join("s.toml")).unwrap_err().to_string();
    assert!(said.contains("pages.toml names the type \"write\", which isn't there"), "{said}");
    fs::remove_file(files.path().join("pages.toml")).unwrap();
    let said = scenario::load(&files.path().join("s.toml")).unwrap_err().to_string();
    assert!(said.contains("pages.toml cannot be read"), "{said}");
}

#[test]
fn a_sweep_over_clients_keeps_the_proportion_of_the_sources() {
    let closed = |clients| format!("[[source]]\narrivals = \"closed\"\nclients = {clients}\n");
    let types = SMALL.split("[[source]]").next().unwrap();
    let text = format!("{types}{}{}[sweep]\nclients = [4, 10]\n", closed(1), closed(3));
    let experiment = read(&text).unwrap();
    let clients = |point| {
        let scenario = experiment.scenario(0, point, 5);
        assert_eq!(scenario.seed, 6);
        let count = |source: &sim::Source| match source.arrivals {
            Arrivals::Closed { clients, .. } => clients,
            _ => 0,
        };
        scenario.sources.iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!((experiment.points(), clients(0), clients(1)), (2, vec![1, 3], vec![2, 8]));
}

#[test]
fn a_sweep_over_utilization_is_of_what_the_service_can_do() {
    let experiment =
        read(&format!("{SMALL}[upstream]\ncores = 2\n[sweep]\nutilization = [0.5, 1.2]\n")).unwrap();
    let rate = |point| experiment.scenario(0, point, 0).sources[0].arrivals.clone();
    assert_eq!(rate(0), Arrivals::Poisson(Rate::constant(1000.0)));
    assert_eq!(rate(1), Arrivals::Poisson(Rate::constant(2400.0)));
    assert_eq!(read(SMALL).unwrap().points(), 1);
}

#[test]
fn a_sweep_that_cannot_be_is_said() {
    let said = |sweep: &str| read(&format!("{SMALL}[sweep]\n{sweep}\n")).unwrap_err().join("\n");
    assert!(said("clients = [10]").contains("needs a closed source"));
    assert!(said("clients = []").contains("is empty"));
    assert!(said("clients = [0]").contains("from 1 to 1000000"));
    assert!(said("clients = 10").contains("isn't a list"));
    assert!(said("").contains("clients: is missing"));
    assert!(said("clients = [1]\nutilization = [1]").contains("can't both be varied"));
    assert!(said("client = [1]").contains("clients"));
}

#[test]
fn a_service_may_be_as_it_was_measured_and_a_gate_told_what_types_take() {
    let text = SMALL.replace("1ms\"", "1ms\"\nknown = \"3ms\"").replace(
        "[[source]]",
        "[scenario]\nlearning = false\n[upstream]\nat_once = 8\ncollapse = \"measured\"\nmeasured = [[1, 1.0], [50, 0.5]]\n[[source]]",
    );
    let experiment = read(&text).unwrap();
    let scenario = &experiment.variants[0].1;
    assert_eq!((scenario.learning, scenario.types[0].known), (false, Some(Duration::from_millis(3))));
    let collapse = Collapse::Measured { points: vec![(1, 1.0), (50, 0.5)] };
    assert_eq!(scenario.upstream.service, Service::Sharing { cores: 1, collapse });
    assert_eq!(scenario.upstream.at_once, Some(8));
    let said = |from: &str, to: &str| read(&text.replace(from, to)).unwrap_err().join("\n");
    assert!(said("[50, 0.5]", "[0, 0.5]").contains("in order"));
    assert!(said("[50, 0.5]", "[50, 0]").contains("above 0"));
    assert!(said("[[1, 1.0], [50, 0.5]]", "[]").contains("at least one point"));
    assert!(said("[[1, 1.0], [50, 0.5]]", "3").contains("isn't a list of points"));
    assert!(said("at_once = 8", "at_once = 8\nservice = \"fifo\"").contains("shares its cores"));
}

#[test]
fn recorded_requests_are_read_from_beside_the_scenario() {
    let text = SMALL.replace("rate = 100", "arrivals = \"replay\"\nreplay = \"r.csv\"");
    let files = directory(&[("s.toml", &text), ("r.csv", "0.5,read,0.001\n")]);
    let experiment = scenario::load(&files.path().join("s.toml")).unwrap();
    assert!(
        matches!(&experiment.variants[0].1.sources[0].arrivals, Arrivals::Replayed(all) if all.len() == 1)
    );
    fs::write(files.path().join("r.csv"), "0.5,write\n").unwrap();
    let said = scenario::load(&files.path().join("s.toml")).unwrap_err().to_string();
    assert!(
        said.contains("s.toml:8: source 1: replay = \"r.csv\": line 1: there is no type \"write\""),
        "{said}"
    );
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_its_line() {
    let text = r#"[scenario]
duration = 10
sed = 1

[[type]]
name = "read"
service_time = "exponential"

[[type]]
name = "read"

[[source]]
mix = { raed = 1 }
rate = -1

[[source]]
arrivals = "closed"
clients = 0

[upstream]
cores = "two"

[[gate]]
conections = 5

[gates]
"#;
    let expected = [
        "s.toml:2: scenario: duration = 10: needs a unit; write \"10ms\", \"10s\" or \"10m\", as you mean it",
        "s.toml:3: scenario: sed: there is no such key; did you mean `seed`?",
        "s.toml:7: type \"read\": service_time = \"exponential\": isn't a distribution of times; write such as",
        "s.toml:9: type \"read\": service_time: is missing",
        "s.toml:10: type \"read\": name = \"read\": another type has this name",
        "s.toml:13: source 1: mix = { raed = 1 }: names the type \"raed\", which isn't there; did you mean `read`?",
        "s.toml:14: source 1: rate = -1: must be a number from 0",
        "s.toml:18: source 2: clients = 0: must be from 1 to 1000000",
        "s.toml:21: upstream: cores = \"two\": a string isn't a whole number",
        "s.toml:24: gate 1: conections: there is no such key; did you mean `connections`?",
        "s.toml:26: gates: there is no such key; did you mean `gate`?",
    ];
    let said = read(text).unwrap_err();
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.starts_with(expected), "{said}\n{expected}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let said = read("").unwrap_err().join("\n");
    assert!(said.contains("there is no type") && said.contains("there is no source"), "{said}");
    assert!(read("[[type]\n").unwrap_err()[0].contains("isn't TOML"));
    let silent = SMALL.replace("rate = 100", "");
    assert!(read(&silent).unwrap_err()[0].contains("rate: is missing; write how many a second"), "{silent}");
    let twice = SMALL.replace("rate = 100", "rate = 100\nutilization = 1");
    assert!(read(&twice).unwrap_err()[0].contains("says what `rate` says already"));
    let nothing = format!("[scenario]\nwithout_gate = false\n{SMALL}");
    assert!(read(&nothing).unwrap_err()[0].contains("there is no gate"));
    let gone = scenario::load(Path::new("/nonexistent/s.toml")).unwrap_err().to_string();
    assert!(gone.contains("/nonexistent/s.toml: cannot be read"), "{gone}");
}

#[test]
fn the_example_scenarios_can_be_run() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let experiment = scenario::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
            assert!(experiment.variants.len() > 1, "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3);
}

#[test]
fn cores_are_varied_with_as_much_to_do_for_each() {
    let text = r#"
[[type]]
name = "read"
service_time = "10ms"

[[source]]
utilization = 0.5

[[source]]
arrivals = "closed"
clients = 3

[upstream]
cores = 2

[sweep]
cores = [1, 4, 128]
"#;
    let experiment = read(text).unwrap();
    assert_eq!((experiment.points(), experiment.sweep.as_ref().unwrap().axis()), (3, "cores"));
    let at = |point| experiment.scenario(0, point, 0);
    for (point, cores, rate, count) in [(0, 1, 50.0, 2), (1, 4, 200.0, 6), (2, 128, 6_400.0, 192)] {
        let scenario = at(point);
        assert_eq!(scenario.upstream.cores(), cores);
        assert_eq!(scenario.sources[0].arrivals, Arrivals::Poisson(Rate::constant(rate)));
        let Arrivals::Closed { clients, .. } = scenario.sources[1].arrivals else { panic!("{scenario:?}") };
        assert_eq!(clients, count);
    }
}

#[test]
fn goals_are_read_and_need_what_they_compare_with() {
    let goal = |keys: &str| read(&format!("{SMALL}\n[goal]\n{keys}"));
    let found = goal("mean_of_ungated = 1.05\nlost = 0\nmeans = { read = \"3s\" }").unwrap().goal.unwrap();
    assert_eq!((found.mean_of_ungated, found.lost, found.served_of_fixed), (Some(1.05), Some(0.0), None));
    assert_eq!(found.means, [(0, Duration::from_secs(3))]);
    let wrong = goal("means = { raed = \"3s\" }").unwrap_err().join("\n");
    assert!(wrong.contains("raed") && wrong.contains("read"), "{wrong}");
    let wrong = goal("served_of_fixed = 0.97").unwrap_err().join("\n");
    assert!(wrong.contains("fixed gate"), "{wrong}");
    let fixed =
        format!("{SMALL}\n[goal]\nserved_of_fixed = 0.97\n[[gate]]\nname = \"fixed\"\nconnections = 4");
    assert_eq!(read(&fixed).unwrap().goal.unwrap().served_of_fixed, Some(0.97));
    assert_eq!(read(SMALL).unwrap().goal, None);
}
