//! Service classes: what a gate's tables of them mean, how they go wrong, and what a reload changes.

#![expect(clippy::panic, reason = "a helper of tests fails like a test")]

use admission::{ClassId, ServiceClass, Share, Turns, Weight};
use config::{FieldRule, Origin, TagRule, TenantBy, World, effective, parse, reload};

const GATE: &str = "[[gate]]\nprotocol = \"http\"\nupstream = \"a:1\"\n";
const FULL: &str = r#"
[[gate.class]]
name = "gold"
weight = 2.5
path = ["/api/**", "/cart/*"]
host = "*.Shop.example"
header = ["X-Tenant: gold", "authorization"]
network = ["10.0.0.0/8", "::1"]

[[gate.class]]
name = "gold"
path = "/vip"

[[gate.class]]
name = "default"
weight = 0.5
"#;

fn read(text: &str) -> Result<World, String> {
    parse(Origin::File("g.toml".into()), text).map_err(|errors| errors.to_string())
}

fn world(text: &str) -> World {
    read(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn class(name: &str, weight: f64) -> ServiceClass {
    ServiceClass::new(ClassId::named(name), Weight::new(weight).expect("a weight"))
}

#[test]
fn every_key_is_heard_and_the_judge_is_told() {
    let full = world(&format!("{GATE}{FULL}"));
    let [gold, again, default] = &full.gates[0].classes[..] else { panic!("three tables") };
    assert_eq!((gold.name.as_str(), gold.weight), ("gold", Weight::new(2.5)));
    assert_eq!(
        (&gold.paths[..], &gold.hosts[..]),
        (&["/api/**".into(), "/cart/*".into()][..], &["*.shop.example".into()][..])
    );
    let field =
        |name: &str, value: Option<&str>| FieldRule { name: name.into(), value: value.map(str::to_owned) };
    assert_eq!(gold.fields, [field("x-tenant", Some("gold")), field("authorization", None)]);
    assert_eq!(gold.networks.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "::1/128"]);
    assert_eq!((again.weight, &again.paths[..]), (None, &["/vip".to_owned()][..]));
    assert_eq!((default.name.as_str(), default.weight), ("default", Weight::new(0.5)));
    let policy = &full.gates[0].policy;
    assert_eq!(policy.classes, [class("gold", 2.5), class("default", 0.5)]);
    assert_eq!(policy.check(), Ok(()));
    assert!(world(GATE).gates[0].policy.classes.is_empty(), "without tables there is one class");
}

#[test]
fn goals_are_read_told_to_the_judge_and_written_as_they_are_read() {
    let goals = ["50ms", "p95 150ms", "wait 20ms", "wait p9 1500us", "100/s", "0.5/s"];
    let table = |(at, goal): (usize, &&str)| {
        let bounds = "importance = 7\nfloor = 0.05\nceiling = 0.6\n";
        format!("[[gate.class]]\nname = \"c{at}\"\npath = \"/{at}\"\ngoal = \"{goal}\"\n{bounds}")
    };
    let tables: String = goals.iter().enumerate().map(table).collect();
    let read = world(&format!("{GATE}goal_tick = \"2s\"\n{tables}"));
    let policy = &read.gates[0].policy;
    assert_eq!(policy.check(), Ok(()));
    assert_eq!(policy.adaptation.tick, std::time::Duration::from_secs(2));
    for (class, goal) in policy.classes.iter().zip(goals) {
        assert_eq!(class.goal.map(|goal| goal.to_string()).as_deref(), Some(goal));
        assert_eq!((class.importance, class.floor, class.ceiling), (7, share(0.05), share(0.6)));
    }
    assert_eq!(policy.classes.len(), goals.len());
    assert_eq!(world(&effective(&read)).gates, read.gates);
}

fn share(part: f64) -> Share {
    Share::new(part).expect("a share")
}

#[test]
fn what_is_in_force_means_the_same_when_it_is_read_again() {
    let full = world(&format!("{GATE}{FULL}"));
    let again = world(&effective(&full));
    assert_eq!(again.gates, full.gates);
}

#[test]
fn mistakes_are_told_with_their_place_and_what_to_write() {
    let cases = [
        ("class = \"gold\"", "isn't a list; write [[gate.class]]"),
        ("class = [1]", "a class isn't a table"),
        ("[[gate.class]]\npath = \"/x\"", "g.toml:4: gate: class: name: is missing"),
        (
            "[[gate.class]]\nname = \"gold\"",
            "g.toml:5: gate: class: name = \"gold\": nothing says which requests \"gold\" is for; write `path`",
        ),
        ("[[gate.class]]\nname = \"default\"\npath = \"/x\"", "is the class of all that no rule fits"),
        ("[[gate.class]]\nname = \"a b\"\npath = \"/x\"", "can't be a name"),
        ("[[gate.class]]\nname = \"a\"\npath = \"/x\"\nweight = 0", "must be"),
        ("[[gate.class]]\nname = \"a\"\npath = \"/x\"\nweight = 1001", "must be from 0.001 to 1000"),
        (
            "[[gate.class]]\nname = \"a\"\npath = \"/x\"\nweight = 1\n[[gate.class]]\nname = \"a\"\npath = \"/y\"\nweight = 2",
            "another table of \"a\" says the weight",
        ),
        ("[[gate.class]]\nname = \"a\"\npath = []", "is empty, so it fits nothing"),
        ("[[gate.class]]\nname = \"a\"\npath = \"/**/x\"", "has ** before its end"),
        (
            "[[gate.class]]\nname = \"a\"\nhost = \"shop.example:80\"",
            "isn't a host; write such as \"shop.example\"",
        ),
        ("[[gate.class]]\nname = \"a\"\nhost = \"shop.*\"", "isn't a host"),
        ("[[gate.class]]\nname = \"a\"\nheader = \"x tenant\"", "isn't a field; write its name"),
        ("[[gate.class]]\nname = \"a\"\nheader = \"x-tenant:\"", "isn't a field"),
        ("[[gate.class]]\nname = \"a\"\nnetwork = \"10.0.0.1/8\"", "has bits of its own"),
        ("[[gate.class]]\nname = \"a\"\npath = \"/x\"\ngoal = \"p100 5ms\"", "isn't a goal; write such as"),
        ("[[gate.class]]\nname = \"a\"\npath = \"/x\"\ngoal = \"0/s\"", "isn't a goal; write such as"),
        ("[[gate.class]]\nname = \"a\"\npath = \"/x\"\ngoal = \"soon\"", "isn't a goal; write such as"),
        ("[[gate.class]]\nname = \"a\"\npath = \"/x\"\nfloor = 1.1", "must be from 0.001 to 1"),
        (
            "[[gate.class]]\nname = \"a\"\npath = \"/x\"\nfloor = 0.5\nceiling = 0.4",
            "has a `floor` above its `ceiling`",
        ),
        ("[[gate.class]]\nname = \"a\"\npath = \"/x\"\nfloor = 1", "more than the whole"),
        ("[[gate.class]]\nname = \"a\"\npaht = \"/x\"", "paht"),
    ];
    for (lines, expected) in cases {
        let said = read(&format!("{GATE}{lines}\n")).expect_err(lines);
        assert!(said.contains(expected), "{lines}\n{said}");
    }
    let many: String =
        (0..64).map(|at| format!("[[gate.class]]\nname = \"c{at}\"\npath = \"/{at}\"\n")).collect();
    let said = read(&format!("{GATE}{many}")).unwrap_err();
    assert!(said.contains("there are more than 64 classes, the default one among them"), "{said}");
    let fewer: String = many.replace("\"c63\"", "\"c0\"");
    assert_eq!(world(&format!("{GATE}{fewer}")).gates[0].policy.classes.len(), 63);
}

#[test]
fn a_gate_for_a_database_has_rules_of_its_own() {
    let full = r#"
[[gate.class]]
name = "reports"
user = ["report", "batch_*"]
database = "shop"
application = "psql"
network = "10.0.0.0/8"
type = "shop: select a, b from report where id = ?"
tag = ["route=/report", "job=nightly"]
"#;
    for protocol in ["postgres", "mysql\"\nusers_file = \"/etc/users"] {
        let text = format!("[[gate]]\nprotocol = \"{protocol}\"\nupstream = \"db:1\"\n{full}");
        let full = world(&text);
        let [reports] = &full.gates[0].classes[..] else { panic!("one table") };
        assert_eq!(reports.users, ["report", "batch_*"]);
        assert_eq!(
            (&reports.databases[..], &reports.applications[..]),
            (&["shop".into()][..], &["psql".into()][..])
        );
        assert_eq!(reports.types, ["shop: select a, b from report where id = ?"], "a comma doesn't end it");
        let tag = |key: &str, value: &str| TagRule { key: key.into(), value: value.into() };
        assert_eq!(reports.tags, [tag("route", "/report"), tag("job", "nightly")]);
        assert_eq!(full.gates[0].policy.classes, [class("reports", 1.0)]);
        assert_eq!(world(&effective(&full)).gates[0].classes, full.gates[0].classes);
    }
}

#[test]
fn a_class_in_the_background_has_no_share_and_yields_to_some() {
    let table = "[[gate.class]]\nname = \"fill\"\nuser = \"fill\"\nbackground = true\n";
    let gate = "[[gate]]\nupstream = \"db:5432\"\n";
    let full = world(&format!("{gate}{table}"));
    assert_eq!(full.gates[0].policy.classes[0].turns, Turns::Background);
    assert_eq!(world(&effective(&full)).gates[0].classes, full.gates[0].classes);
    let said = read(&format!("{gate}{table}weight = 2\n")).unwrap_err();
    assert!(said.contains("\"fill\" has background = true, and with it no weight"), "{said}");
    let default = "[[gate.class]]\nname = \"default\"\nbackground = true\n";
    let said = read(&format!("{gate}{table}{default}")).unwrap_err();
    assert!(said.contains("has nothing but classes in the background"), "{said}");
}

#[test]
fn a_class_says_what_its_tenants_are_known_by() {
    let table = |by: &str| format!("[[gate.class]]\nname = \"default\"\ntenant = \"{by}\"\n");
    let database = "[[gate]]\nupstream = \"db:5432\"\n";
    for (gate, by, expected) in [
        (GATE, "header X-Tenant", TenantBy::Header("x-tenant".into())),
        (GATE, "network", TenantBy::Network),
        (database, "user", TenantBy::User),
        (database, "network", TenantBy::Network),
    ] {
        let full = world(&format!("{gate}{}", table(by)));
        assert_eq!(full.gates[0].classes[0].tenant, Some(expected));
        assert_eq!(world(&effective(&full)).gates[0].classes, full.gates[0].classes);
    }
    for (gate, by) in [(GATE, "user"), (GATE, "header a: b"), (database, "header a")] {
        let said = read(&format!("{gate}{}", table(by))).unwrap_err();
        assert!(
            said.contains("is nothing that tenants are known by here") && said.contains("write"),
            "{said}"
        );
    }
    let twice = format!("{GATE}{}{}", table("network"), table("network"));
    let said = read(&twice).unwrap_err();
    assert!(said.contains("another table of \"default\" says the tenant"), "{said}");
}

#[test]
fn what_is_wrong_before_a_database_is_told() {
    let table = "[[gate.class]]\nname = \"gold\"\n";
    for (lines, expected) in [
        ("path = \"/x\"", "gate: class: path = \"/x\": belongs to a class of a gate for HTTP"),
        ("", "nothing says which requests \"gold\" is for; write `user`, `database`"),
        ("usr = \"x\"", "usr"),
        ("user = \"a*b\"", "has a * before its end"),
        ("user = []", "is empty, so it fits nothing"),
        ("type = \"select ?\"", "doesn't say of which database it is"),
        ("tag = \"report\"", "isn't a tag; write a key and a value"),
        ("tag = \"traceparent=00\"", "differs with every request"),
        (
            "user = \"a\"\n[[gate.class]]\nname = \"tin\"\nuser = \"a\"\ndatabase = \"shop\"",
            "gate: class: name = \"tin\": never decides: a table of \"gold\" before it fits all that it fits",
        ),
        (
            "user = \"a\"\nweight = 0\n[[gate.class]]\nname = \"tin\"\nuser = \"a\"\nfloor = 2",
            "gate: class: name = \"tin\": never decides: a table of \"gold\" before it fits all that it fits",
        ),
        ("user = \"a\"\nweight = -1", "weight = -1: must be from 0.001 to 1000"),
    ] {
        let said = read(&format!("[[gate]]\nupstream = \"db:5432\"\n{table}{lines}\n")).expect_err(lines);
        assert!(said.contains(expected), "{lines}\n{said}");
    }
    let said = read(&format!("{GATE}{table}user = \"x\"\n")).unwrap_err();
    assert!(said.contains("user = \"x\": belongs to a class of a gate for a database"), "{said}");
}

#[test]
fn a_reload_takes_other_weights_and_rules() {
    let (running, asked) =
        (world(&format!("{GATE}{FULL}")), world(&format!("{GATE}{}", FULL.replace("2.5", "7"))));
    let reload = reload(&running, &asked).unwrap();
    assert!(reload.kept.is_empty(), "{:?}", reload.kept);
    assert_eq!(reload.applied.iter().map(|change| change.key).collect::<Vec<_>>(), ["class"]);
    assert_eq!(reload.world.gates[0].policy.classes[0], class("gold", 7.0));
}

const GROUPS: &str = r#"
[[gate.class]]
name = "gold"
path = "/gold"
goal = "50ms"
cgroup = "site.slice/gold.service/"

[[gate.class]]
name = "default"
cgroup = "/site.slice/rest.service"
"#;

#[test]
fn a_class_may_have_the_control_group_of_its_workers() {
    let with = world(&format!("{GATE}{GROUPS}"));
    let groups = with.gates[0].classes.iter().map(|class| class.cgroup.as_deref()).collect::<Vec<_>>();
    assert_eq!(groups, [Some("/site.slice/gold.service"), Some("/site.slice/rest.service")]);
    assert_eq!(world(&effective(&with)).gates, with.gates);
    // With fixed weights, and in the background, too.
    let fixed = GROUPS.replace("goal = \"50ms\"", "weight = 3");
    world(&format!(
        "{GATE}{fixed}[[gate.class]]\nname = \"bots\"\npath = \"/b\"\nbackground = true\ncgroup = \"/b\""
    ));
}

#[test]
fn control_groups_that_can_do_nothing_are_errors() {
    for (from, to, why) in [
        (
            "rest.service",
            "gold.service",
            "\"gold\" and \"default\" have one cgroup: /site.slice/gold.service",
        ),
        ("/rest.service", "", "\"gold\" and \"default\" have cgroups within one another"),
        ("rest.service", "../x", "isn't the path of a control group"),
        ("/site.slice/rest.service", "/sys/fs/cgroup/rest", "isn't a path within the hierarchy"),
        ("/site.slice/rest.service", "/", "is the group of all processes"),
    ] {
        let text = GROUPS.replace(from, to);
        assert_ne!(text, GROUPS);
        let errors = read(&format!("{GATE}{text}")).expect_err(why);
        assert!(errors.contains(why), "{errors}");
    }
    let database = format!("{GATE}{GROUPS}").replace("\"http\"", "\"postgres\"");
    let errors = read(&database).expect_err("it is a database");
    assert!(errors.contains("belongs to a class of a gate for HTTP"), "{errors}");
    let both = format!(
        "{GATE}{GROUPS}{}name = \"b\"\nlisten = \"127.0.0.1:1\"\n{GROUPS}",
        GATE.replace("a:1", "b:1")
    );
    let errors = read(&both).expect_err("two gates");
    assert!(errors.contains("another gate has the cgroup /site.slice/gold.service"), "{errors}");
}
