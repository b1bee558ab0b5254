//! What a gate's tables of types and classes mean in a scenario.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use admission::{ClassId, Goal, Rejection, ServiceClass, Targets, Weight};

const HTTP: &str = "[[gate]]\nprotocol = \"http\"\nupstream = \"a:1\"\n";
const SCENARIO: &str = "[[type]]\nname = \"read\"\nservice_time = \"1ms\"\n\
                        [[type]]\nname = \"report\"\nservice_time = \"9ms\"\n\
                        [[source]]\nrate = 1\n";

fn goal(mean: Option<u64>, p95: Option<u64>) -> Goal {
    Goal { mean: mean.map(Duration::from_millis), p95: p95.map(Duration::from_millis) }
}

fn rejection(gate: &str, config: &str) -> Result<Rejection, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    std::fs::write(folder.path().join("g.toml"), config).unwrap();
    let head = if config.is_empty() { "" } else { "[scenario]\nconfig = \"g.toml\"\n" };
    std::fs::write(&file, format!("{head}{SCENARIO}{gate}")).unwrap();
    let experiment = scenario::load(&file).map_err(|errors| errors.to_string())?;
    Ok(experiment.variants.last().unwrap().1.policy.rejection.clone())
}

#[test]
fn in_a_scenario_types_are_called_as_there() {
    let of_report = |ms| BTreeMap::from([(sim::Scenario::request_type(1), goal(Some(ms), None))]);
    let of = |name: &str| format!("[[gate]]\n[[gate.type]]\nname = \"{name}\"\ntarget = \"1s\"\n");
    assert_eq!(
        rejection(&of("report"), "").unwrap(),
        Rejection::Target(Targets { all: Goal::default(), types: of_report(1_000) })
    );
    let said = rejection(&of("reports"), "").unwrap_err();
    assert!(said.contains("no type of this scenario is called so; did you mean `report`?"), "{said}");
}

/// A configuration may know of more types than a scenario has.
#[test]
fn a_configuration_is_simulated_with_the_targets_of_the_types_that_there_are() {
    let types = "[[gate.type]]\nname = \"report\"\ntarget = \"2s\"\n[[gate.type]]\nname = \"other\"\ntarget = \"1s\"\n";
    let types_of_report = BTreeMap::from([(sim::Scenario::request_type(1), goal(Some(2_000), None))]);
    let expected = Rejection::Target(Targets { all: goal(Some(150), None), types: types_of_report });
    let config = format!("{HTTP}target = \"150ms\"\n{types}");
    assert_eq!(rejection("", &config).unwrap(), expected);
    assert_eq!(rejection(&config.replace("[[gate]]", "[[gate]]\nname = \"here\""), "").unwrap(), expected);
}

#[test]
fn a_source_of_a_scenario_says_its_class_and_a_gates_classes_need_no_rules_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    let text = "[[type]]\nname = \"a\"\nservice_time = \"1ms\"\n[[source]]\nrate = 1\nclass = \"gold\"\n[[source]]\nrate = 1\n\
                [[gate]]\nprotocol = \"http\"\n[[gate.class]]\nname = \"gold\"\nweight = 3\n";
    std::fs::write(&file, text).unwrap();
    let experiment = scenario::load(&file).unwrap_or_else(|errors| panic!("{errors}"));
    let (_, scenario) = experiment.variants.last().unwrap();
    let sources: Vec<_> = scenario.sources.iter().map(|source| source.class).collect();
    assert_eq!(sources, [ClassId::named("gold"), ClassId::DEFAULT]);
    assert_eq!(
        scenario.policy.classes,
        [ServiceClass::new(ClassId::named("gold"), Weight::new(3.0).expect("a weight"))]
    );
}

/// `config` tells an operator that these are for simulations, and must know all of their names.
#[test]
fn a_gate_before_a_service_has_no_published_method_of_the_laboratory() {
    let capacities = sim::controllers::CAPACITIES.map(|maker| format!("capacity = \"{}\"\n", maker.name));
    let rejection = format!("rejection = \"{}\"\n", sim::controllers::CODEL.name);
    for method in capacities.into_iter().chain([rejection]) {
        let parsed = config::parse(config::Origin::CommandLine, &format!("{HTTP}{method}"));
        let said = parsed.unwrap_err().to_string();
        assert!(said.contains("went to the laboratory"), "{method}{said}");
    }
}
