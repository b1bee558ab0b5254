//! Types with a target of their own: what a gate's tables of them mean, how they go wrong, and what a
//! reload changes.

#![expect(clippy::panic, reason = "a helper of tests fails like a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use admission::{Goal, Rejection, RequestType, Targets};
use config::{Origin, OwnTarget, World, effective, parse, reload};

const HTTP: &str = "[[gate]]\nprotocol = \"http\"\nupstream = \"a:1\"\n";
const POSTGRES: &str = "[[gate]]\nupstream = \"db:5432\"\n";
const FULL: &str = r#"
target = "150ms"

[[gate.type]]
name = "GET /search/*"
target = "100ms"
target_p95 = "400ms"

[[gate.type]]
name = "report"
target_p95 = "5s"
"#;

fn read(text: &str) -> Result<World, String> {
    parse(Origin::File("g.toml".into()), text).map_err(|errors| errors.to_string())
}

fn world(text: &str) -> World {
    read(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn goal(mean: Option<u64>, p95: Option<u64>) -> Goal {
    Goal { mean: mean.map(Duration::from_millis), p95: p95.map(Duration::from_millis) }
}

/// The judge's targets, where a type's key is the length of its name.
fn told(world: &World) -> Rejection {
    world.gates[0].policy_of(|name| Some(RequestType(name.len() as u64))).rejection
}

#[test]
fn every_key_is_heard_and_the_judge_is_told() {
    let full = world(&format!("{HTTP}{FULL}"));
    let own = |name: &str, goal| OwnTarget { name: name.to_owned(), goal };
    let (search, report) = (goal(Some(100), Some(400)), goal(None, Some(5_000)));
    assert_eq!(full.gates[0].own_targets, [own("GET /search/*", search), own("report", report)]);
    let types = BTreeMap::from([(RequestType(13), search), (RequestType(6), report)]);
    assert_eq!(told(&full), Rejection::Target(Targets { all: goal(Some(150), None), types }));
    let of_none = full.gates[0].policy_of(|_| None);
    assert_eq!(of_none.rejection, Rejection::Target(Targets::mean(Duration::from_millis(150))));
    assert_eq!(full.gates[0].policy_of(|_| Some(RequestType(1))).check(), Ok(()));
}

#[test]
fn a_target_of_a_type_needs_none_of_the_gate() {
    let alone = world(&format!("{POSTGRES}[[gate.type]]\nname = \"shop: /cart\"\ntarget = \"1s\"\n"));
    let types = BTreeMap::from([(RequestType(11), goal(Some(1_000), None))]);
    assert_eq!(told(&alone), Rejection::Target(Targets { all: Goal::default(), types }));
    assert!(effective(&alone).contains("rejection = \"target\""));
}

#[test]
fn what_is_in_force_means_the_same_when_it_is_read_again() {
    let full = world(&format!("{HTTP}{FULL}"));
    assert_eq!(world(&effective(&full)).gates, full.gates);
}

#[test]
fn mistakes_are_told_with_their_place_and_what_to_write() {
    let cases = [
        (HTTP, "type = \"report\"", "isn't a list; write [[gate.type]]"),
        (HTTP, "type = [1]", "a type isn't a table; write [[gate.type]] with a `name` below"),
        (HTTP, "[[gate.type]]\ntarget = \"1s\"", "g.toml:4: gate: type: name: is missing; say which type"),
        (HTTP, "[[gate.type]]\nname = \"report\"", "g.toml:4: gate: type: target: is missing; add the mean"),
        (
            HTTP,
            "[[gate.type]]\nname = \"report\"\ntarget = \"0s\"",
            "g.toml:6: gate: type: target = \"0s\": must",
        ),
        (HTTP, "[[gate.type]]\nname = \"report\"\ntaget = \"1s\"", "did you mean `target`?"),
        (
            HTTP,
            "[[gate.type]]\nname = \"report\"\ntarget = \"1s\"\n[[gate.type]]\nname = \"report\"\ntarget_p95 = \"2s\"",
            "g.toml:8: gate: type: name = \"report\": another table is for this type; write both targets",
        ),
        (
            HTTP,
            "[[gate.type]]\nname = \"b\u{fc}cher\"\ntarget = \"1s\"",
            "can't be a type's name; write at most 64",
        ),
        (
            HTTP,
            "type_field = \"ignore\"\n[[gate.type]]\nname = \"serch\"\ntarget = \"1s\"\n[[gate.route]]\npath = \"/s\"\nname = \"search\"",
            "nothing is called \"serch\": no route, and the application isn't asked; did you mean `search`?",
        ),
        (
            HTTP,
            "rejection = \"deadline\"\n[[gate.type]]\nname = \"report\"\ntarget = \"1s\"",
            "isn't held by this `rejection`; leave out `rejection`, and the types' targets are held",
        ),
        (
            POSTGRES,
            "[[gate.type]]\nname = \"/cart\"\ntarget = \"1s\"",
            "g.toml:4: gate: type: name = \"/cart\": doesn't say of which database it is; write it as `gatekeeper types --json`",
        ),
        (
            POSTGRES,
            "[[gate.type]]\nname = \"shop: select a, b… #0a1b2c3d\"\ntarget = \"1s\"",
            "is cut, so that nobody can tell which statement it is; give the statement a route tag",
        ),
    ];
    for (gate, lines, expected) in cases {
        let said = read(&format!("{gate}{lines}\n")).expect_err(lines);
        assert!(said.contains(expected), "{lines}\n{said}");
    }
    let table = |at| format!("[[gate.type]]\nname = \"t{at}\"\ntarget = \"1s\"\n");
    let most: String = (0..1000).map(table).collect();
    assert_eq!(world(&format!("{HTTP}{most}")).gates[0].own_targets.len(), 1000);
    let said = read(&format!("{HTTP}{most}{}", table(1000))).unwrap_err();
    assert!(
        said.contains("there are more than 1000 tables; `target` is for all that have no table"),
        "{said}"
    );
}

#[test]
fn a_reload_takes_other_targets() {
    let running = world(&format!("{HTTP}{FULL}"));
    let asked = world(&format!("{HTTP}{}", FULL.replace("5s", "7s")));
    let reload = reload(&running, &asked).unwrap();
    assert!(reload.kept.is_empty(), "{:?}", reload.kept);
    assert_eq!(reload.applied.iter().map(|change| change.key).collect::<Vec<_>>(), ["type"]);
    assert_eq!(reload.world.gates[0].own_targets[1].goal, goal(None, Some(7_000)));
}
