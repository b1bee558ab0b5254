//! Variables of the environment in a file.

use config::{Connections, Errors, Origin, World, parse_in};

fn read(text: &str) -> Result<World, Errors> {
    let variables = |name: &str| {
        let value = match name {
            "DB_HOST" => "db.internal",
            "POOL" => "7",
            "QUOTES" => "x\"\nqueue_max = 1 #",
            "SECRET" => "geheim",
            "_a9" => "2s",
            _ => return None,
        };
        Some(value.to_owned())
    };
    parse_in(Origin::File("g.toml".into()), text, &variables)
}

fn gate(lines: &str) -> Result<World, String> {
    read(&format!("[[gate]]\n{lines}\n")).map_err(|errors| errors.to_string())
}

#[test]
fn a_variable_stands_for_its_value_in_texts_lists_and_numbers() {
    let world = gate(
        "upstream = \"${DB_HOST}:5432\"\nconnections = \"${POOL}\"\nqueue_timeout = \"${_a9}\"\n\
         admin_users = [\"ann\", \"${SECRET}\"]\nstate_file = \"/a/${DB_HOST}/${POOL}.json\"\n\
         [[gate.class]]\nname = \"c\"\nuser = \"${SECRET}\"\nweight = \"${POOL}\"",
    )
    .unwrap();
    let gate = &world.gates[0];
    assert_eq!(gate.upstream()[0].to_string(), "db.internal:5432");
    assert_eq!(gate.connections, Connections::Fixed(7));
    assert_eq!(gate.policy.queue_timeout.as_secs(), 2);
    assert_eq!(gate.state_file.as_ref().unwrap().to_str(), Some("/a/db.internal/7.json"));
    let config::Service::Postgres(postgres) = &gate.service else { panic!("it is PostgreSQL") };
    assert_eq!(postgres.admin_users, ["ann", "geheim"]);
}

#[test]
fn a_value_stays_within_its_text_and_is_never_quoted() {
    let said = gate("upstream = \"${QUOTES}\"").unwrap_err();
    assert!(said.starts_with("g.toml:2: gate: upstream = \"${QUOTES}\": "), "{said}");
    assert!(!said.contains("queue_max"), "{said}");
    let said = gate("upstream = \"db:5432\"\nqueue_timeout = \"${SECRET}\"").unwrap_err();
    assert!(said.contains("queue_timeout = \"${SECRET}\"") && !said.contains("geheim"), "{said}");
    // What should be a number is no secret.
    let said = gate("upstream = \"db:5432\"\nconnections = \"${DB_HOST}\"").unwrap_err();
    let told = "connections = \"${DB_HOST}\": isn't a number of connections (DB_HOST is \"db.internal\");";
    assert!(said.contains(told), "{said}");
}

#[test]
fn a_variable_that_is_missing_or_has_no_name_is_the_only_complaint_of_its_text() {
    for (written, told) in [
        ("${NOWHERE}:5432", "the environment has no variable NOWHERE"),
        ("${}", "has a `${` without the name"),
        ("a${DB HOST}", "has a `${` without the name"),
        ("${9}", "has a `${` without the name"),
        ("x${DB_HOST", "has a `${` without the name"),
    ] {
        let said = gate(&format!("upstream = \"{written}\"\nqueue_max = -1")).unwrap_err();
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0].starts_with("g.toml:2: upstream: ") && lines[0].contains(told), "{said}");
        assert!(lines[1].starts_with("g.toml:3: gate: queue_max"), "{said}");
    }
}

#[test]
fn the_characters_themselves_can_be_written_and_what_is_in_force_is_read_as_it_is() {
    let world = gate("upstream = \"db:5432\"\nstate_file = \"/a/$${DB_HOST}/$5/$$\"").unwrap();
    assert_eq!(world.gates[0].state_file.as_ref().unwrap().to_str(), Some("/a/${DB_HOST}/$5/$$"));
    let printed = config::effective(&world);
    assert_eq!(read(&printed).unwrap(), world, "{printed}");
    // A shell has filled in what a flag has.
    let flags = [("upstream", "db:5432".to_owned()), ("state_file", "/a/${DB_HOST}".to_owned())];
    let world = config::from_flags(&flags, None).unwrap();
    assert_eq!(world.gates[0].state_file.as_ref().unwrap().to_str(), Some("/a/${DB_HOST}"));
}
