//! Every way to get a key wrong, and what the user is told.

#![expect(clippy::panic, reason = "a helper of tests fails like a test")]

use config::{Origin, parse};

/// What is said of a file with this text.
fn complaints(text: &str) -> String {
    let origin = Origin::File("g.toml".into());
    parse(origin, text).expect_err("the text is wrong").to_string()
}

/// What is said of a gate with this line below its upstream, without place and quote.
fn of_gate(line: &str) -> String {
    let said = complaints(&format!("[[gate]]\nupstream = \"db:5432\"\n{line}\n"));
    let quote = format!("g.toml:3: gate: {line}: ");
    said.strip_prefix(&quote).unwrap_or_else(|| panic!("{said:?} doesn't begin with {quote:?}")).to_owned()
}

fn assert_each(cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        assert_eq!(&of_gate(line), expected, "{line}");
    }
}

#[test]
fn a_duration_without_a_unit_is_told_how_to_get_one() {
    assert_eq!(
        complaints("[[gate]]\nname = \"shop\"\nupstream = \"db:5432\"\n\nqueue_timeout = 120\n"),
        "g.toml:5: gate \"shop\": queue_timeout = 120: needs a unit; write \"120ms\", \"120s\" or \"120m\", as you mean it"
    );
    assert_each(&[
        ("capacity = 20", "needs a unit; write \"20ms\", \"20s\" or \"20m\", as you mean it"),
        ("aging_floor = 0.25", "needs a unit; write a whole number with one, such as \"250ms\""),
        ("login_timeout = \"15\"", "needs a unit; write \"15ms\", \"15s\" or \"15m\", as you mean it"),
        ("connect_timeout = 5", "needs a unit; write \"5ms\", \"5s\" or \"5m\", as you mean it"),
        ("keepalive = 60", "needs a unit; write \"60ms\", \"60s\" or \"60m\", as you mean it"),
        ("drain_timeout = 30", "needs a unit; write \"30ms\", \"30s\" or \"30m\", as you mean it"),
        ("suspend_after = 1", "needs a unit; write \"1ms\", \"1s\" or \"1m\", as you mean it"),
    ]);
}

#[test]
fn durations_have_bounds() {
    let form = "write a duration such as \"250ms\", \"1s\" or \"2m\"";
    assert_each(&[
        ("queue_timeout = \"0s\"", "must be more than zero"),
        ("queue_timeout = \"25h\"", "must be at most \"24h\""),
        ("queue_timeout = true", &format!("a boolean isn't a duration; {form}")),
        ("login_timeout = \"0ms\"", "must be more than zero"),
        ("connect_timeout = \"2days\"", "must be at most \"24h\""),
        ("keepalive = \"999ms\"", "must be at least \"1s\""),
        ("capacity = \"0s\"", "must be more than zero"),
        (
            "capacity = \"automatic\"",
            "isn't known; write an amount of work such as \"20s\", \"none\", or who finds it: \"auto\", \
             \"incremental-steps\", \"parabola\"",
        ),
    ]);
    assert!(of_gate("queue_timeout = \"soon\"").ends_with(form));
    for (written, meant) in [
        ("5 minuts", "5 minutes"),
        ("1h 10secnds", "1h 10seconds"),
        ("150 milliseconds", "150ms"),
        ("1s 150milliseconds", "1s 150ms"),
        ("150 Millisecond", "150ms"),
        ("150 MS", "150ms"),
        ("150 microsecond", "150us"),
    ] {
        let said = of_gate(&format!("queue_timeout = \"{written}\""));
        assert!(said.ends_with(&format!("; did you mean {meant:?}?")), "{said}");
        assert!(said.starts_with("isn't a duration: there is no unit "), "{said}");
        let text = format!("[[gate]]\nupstream = \"db:5432\"\nqueue_timeout = {meant:?}\n");
        assert!(parse(Origin::File("g.toml".into()), &text).is_ok(), "{meant} is taken");
    }
    assert!(of_gate("queue_timeout = \"5 parsecs\"").ends_with(form));
    assert!(of_gate("drain_timeout = \"-1s\"").ends_with(form));
}

#[test]
fn a_protocol_that_is_not_known_is_told_which_are() {
    let known = "write \"postgres\" or \"mysql\" or \"http\"";
    assert_each(&[("protocol = \"smtp\"", &format!("isn't known; {known}"))]);
    for (written, meant) in [
        ("mariadb", "mysql"),
        ("MySQL", "mysql"),
        ("postgresql", "postgres"),
        ("postgre", "postgres"),
        ("https", "http"),
    ] {
        let said = format!("isn't known; did you mean {meant:?}? Else {known}");
        assert_eq!(of_gate(&format!("protocol = {written:?}")), said);
    }
}

#[test]
fn what_went_to_the_laboratory_says_so_and_what_to_use() {
    let moved = "went to the laboratory, since it only serves to compare";
    let simulated = "a gate of `gatekeeper simulate` still takes this one";
    for name in ["vegas", "gradient2", "aimd"] {
        let line = format!("capacity = \"{name}\"");
        assert_each(&[(&line, &format!("{moved}; write \"auto\"; {simulated}"))]);
        let asked = config::capacity(name).expect_err("no gate before a service takes it");
        assert_eq!(asked, format!("{moved}; write \"auto\"; {simulated}"));
    }
    let codel =
        format!("{moved}; leave it out and write a `target`, such as target = \"150ms\"; {simulated}");
    assert_each(&[("rejection = \"codel\"", &codel)]);
    for key in ["codel_target", "codel_interval"] {
        let said = complaints(&format!("[[gate]]\nupstream = \"db:5432\"\n{key} = \"1s\"\n"));
        let hint = "CoDel is a method to compare with, for simulations; `target` holds a response time";
        assert!(said.ends_with(&format!("there is no such key; {hint}")), "{said}");
    }
}

#[test]
fn numbers_have_bounds() {
    assert_each(&[
        ("connections = 0", "must be from 1 to 10000"),
        ("connections = -5", "must be from 1 to 10000"),
        ("connections = 10001", "must be from 1 to 10000"),
        ("connections = \"20\"", "is a string; write 20 without quotes"),
        ("connections = 2.5", "a number isn't a whole number; write a whole number from 1 to 10000"),
        ("connections = \"many\"", "isn't a number of connections; write a whole number, or \"auto\""),
        ("pinned_max = 0", "must be from 1 to 10000"),
        ("long_limit = 10001", "must be from 0 to 10000"),
        ("long_limit = \"few\"", "isn't a limit; write \"auto\", a whole number, or \"none\""),
        ("cost_window = 0", "must be from 1 to 1024"),
        ("cost_window = 1025", "must be from 1 to 1024"),
        ("queue_max = 10000001", "must be from 0 to 10000000"),
        ("max_clients = 0", "must be from 1 to 1000000"),
        ("logins_max = 0", "must be from 1 to 10000"),
        ("types_max = 0", "must be from 1 to 10000"),
        ("aging = -1", "must be from 0 to 1000000; write \"none\" for no bound"),
        ("aging = inf", "must be from 0 to 1000000; write \"none\" for no bound"),
        ("aging = \"x\"", "a string isn't a number; write a number from 0, or \"none\" for no bound"),
    ]);
}

#[test]
fn pinned_connections_are_at_most_as_many_as_there_are() {
    assert_eq!(
        complaints("[[gate]]\nupstream = \"db:5432\"\nconnections = 20\npinned_max = 21\n"),
        "g.toml:4: gate: pinned_max = 21: is more than `connections` (20); leave it out for half of them"
    );
}

#[test]
fn names_are_chosen_from_those_that_are_known() {
    assert_each(&[
        ("order = \"sjf\"", "isn't known; write \"fifo\" or \"shortest-first\""),
        ("order = 1", "an integer isn't a string; write \"fifo\" or \"shortest-first\""),
        ("cost = \"mean\"", "isn't known; write \"moving-average\" or \"ewma\" or \"steady\" or \"fixed\""),
        ("mode = \"shadow\"", "isn't known; write \"enforce\" or \"observe\""),
        ("pooling = \"statement\"", "isn't known; write \"transaction\" or \"session\""),
        ("on_disconnect = \"kill\"", "isn't known; write \"default\" or \"cancel\" or \"finish\""),
        ("allow_trust_relay = \"true\"", "is a string; write true without quotes"),
        ("allow_trust_relay = 1", "an integer is neither true nor false"),
    ]);
    let process = complaints("[process]\nmemory_max = \"512MB\"\n[[gate]]\nupstream = \"db:5432\"\n");
    assert_eq!(
        process,
        "g.toml:2: process: memory_max = \"512MB\": isn't an amount; write \"auto\", or megabytes as a whole number"
    );
    let log = complaints("[log]\nformat = \"xml\"\nlevel = \"loud\"\n[[gate]]\nupstream = \"db:5432\"\n");
    assert_eq!(
        log,
        "g.toml:2: log: format = \"xml\": isn't known; write \"text\" or \"json\"\n\
         g.toml:3: log: level = \"loud\": isn't known; write \"error\" or \"warn\" or \"info\" or \"debug\" or \"trace\""
    );
}

#[test]
fn a_target_and_who_holds_it_belong_together() {
    assert_each(&[
        (
            "rejection = \"yaksha\"",
            "needs a `target`; add the mean response time to hold, such as target = \"150ms\"",
        ),
        (
            "rejection = \"target\"",
            "needs a `target`; add the mean response time to hold, such as target = \"150ms\", or target_p95",
        ),
        ("target = 150", "needs a unit; write \"150ms\", \"150s\" or \"150m\", as you mean it"),
        ("yaksha_arrivals = 0", "must be more than 0"),
    ]);
    assert_eq!(
        complaints("[[gate]]\nupstream = \"db:5432\"\ntarget = \"1s\"\nrejection = \"deadline\"\n"),
        "g.toml:3: gate: target = \"1s\": isn't held by this `rejection`; leave out `rejection`, and target is held; \
         or leave it out"
    );
    let yaksha =
        "[[gate]]\nupstream = \"db:5432\"\ntarget = \"1s\"\ntarget_p95 = \"2s\"\nrejection = \"yaksha\"\n";
    assert!(complaints(yaksha).starts_with("g.toml:4: gate: target_p95 = \"2s\": isn't held"));
}

#[test]
fn a_gate_needs_a_proper_name() {
    let long = format!("name = \"{}\"", "x".repeat(65));
    for line in ["name = \"\"", "name = \"my shop\"", long.as_str()] {
        let said = complaints(&format!("[[gate]]\nupstream = \"db:5432\"\n{line}\n"));
        assert!(said.ends_with("can't be a name; write letters, digits, - and _, at most 64"), "{said}");
    }
    let numbered = complaints("[[gate]]\nupstream = \"db:5432\"\nname = 7");
    assert_eq!(numbered, "g.toml:3: gate: name = 7: an integer isn't a string; put it in quotes");
}

#[test]
fn listen_must_be_an_address() {
    assert_each(&[
        (
            "listen = \"\"",
            "is empty; write \"host:6432\", a directory with a PostgreSQL socket such as \"/run/postgresql\", or \"unix:/path\"",
        ),
        ("listen = \"0.0.0.0\"", "has no port; write \"0.0.0.0:6432\""),
        ("listen = \"*:6432\"", "has no host; for all interfaces write \"0.0.0.0:6432\""),
        ("listen = \":6432\"", "has no host; for all interfaces write \"0.0.0.0:6432\""),
        (
            "listen = \"::1\"",
            "is ambiguous: where does the port begin?; write an IPv6 address in brackets: \"[::1]:6432\"",
        ),
        ("listen = \"localhost:65536\"", "\"65536\" is not a port; a port is a number up to 65535"),
        ("listen = \"localhost:+1\"", "\"+1\" is not a port; a port is a number up to 65535"),
        ("listen = \"a/b:1\"", "\"a/b\" is neither a host name nor an IP address"),
        ("listen = \"[:1\"", "\"[\" is neither a host name nor an IP address"),
        ("listen = \"unix:gate.sock\"", "is a relative path; write an absolute one: \"unix:/run/…\""),
        ("listen = 6432", "an integer isn't a string; put it in quotes"),
    ]);
    let long = format!("[[gate]]\nupstream = \"db:5432\"\nlisten = \"/{}\"", "x".repeat(108));
    assert!(complaints(&long).ends_with("is too long for a socket: at most 107 bytes fit"));
}

/// What is said of this upstream, without place.
fn of_upstream(upstream: &str) -> String {
    let said = complaints(&format!("[[gate]]\nupstream = \"{upstream}\"\n"));
    said.strip_prefix("g.toml:2: gate: upstream = ").unwrap_or_else(|| panic!("{said:?}")).to_owned()
}

#[test]
fn an_upstream_with_a_password_is_refused_and_not_repeated() {
    let why = "holds a user or a password; no credentials belong here: every client logs in to the server as itself; write \"host:port\"";
    for upstream in
        ["postgres://app:hunter2@db/shop", "app:hunter2@db:5432", "host=db user=app password=hunter2"]
    {
        assert_eq!(of_upstream(upstream), format!("\"…\": {why}"));
    }
}

#[test]
fn an_upstream_with_tls_is_told_where_that_belongs() {
    for upstream in
        ["db:5432?sslmode=require", "postgres://db/shop?sslmode=verify-full", "host=db sslmode=require"]
    {
        let said = of_upstream(upstream);
        assert!(said.contains("asks for TLS, which has keys of its own; write the address alone, and upstream_tls_mode beside it"), "{said}");
    }
}

#[test]
fn an_upstream_is_an_address_and_nothing_else() {
    assert_eq!(of_upstream("db"), "\"db\": has no port; write \"db:5432\"");
    assert_eq!(of_upstream("db:0"), "\"db:0\": has port 0");
    assert_eq!(
        of_upstream("postgres://db"),
        "\"postgres://db\": is a URL (postgres://), not an address; write \"db:5432\""
    );
    assert!(of_upstream("host=db port=5432").contains("holds settings"));
    assert!(of_upstream("127.0.0.1:6432").ends_with("is the gate itself (`listen`)"));
    assert_eq!(
        complaints("\n[[gate]]\nconnections = 5\n"),
        "g.toml:2: gate: upstream: is missing; write where the server listens, such as \"127.0.0.1:5432\""
    );
}

#[test]
fn the_admin_listener_is_tcp_or_none() {
    let of_admin =
        |line: &str| complaints(&format!("[admin]\nlisten = {line}\n[[gate]]\nupstream = \"db:5432\"\n"));
    assert_eq!(
        of_admin("\"unix:/run/admin\""),
        "g.toml:2: admin: listen = \"unix:/run/admin\": is a Unix socket; write \"host:port\" or \"none\" here, and the path as `socket`"
    );
    assert_eq!(
        of_admin("\"6433\""),
        "g.toml:2: admin: listen = \"6433\": has no host; write \"127.0.0.1:6433\""
    );
    assert!(of_admin("\"127.0.0.1:6432\"").ends_with("the admin listener is there"));
    for everywhere in ["0.0.0.0:6432", "[::]:6432"] {
        let said = of_admin(&format!("{everywhere:?}"));
        assert!(said.ends_with(&format!("the admin listener is there ({everywhere})")), "{said}");
    }
    assert_eq!(
        of_admin("\"none\"\nsocket = \"run/a\""),
        "g.toml:3: admin: socket = \"run/a\": is a relative path; write an absolute one: \"unix:/run/…\""
    );
    assert_eq!(
        of_admin("\"none\"\nsocket_mode = \"0666\""),
        "g.toml:3: admin: socket_mode = \"0666\": isn't known; write \"0600\" or \"0660\""
    );
}

#[test]
fn a_capacity_by_itself_is_read_and_written_as_in_a_file() {
    for text in ["none", "auto", "20s", "1m 30s", "250ms"] {
        let capacity = config::capacity(text).expect("it is one");
        assert_eq!(config::capacity_text(capacity), text);
    }
    let said = |text| config::capacity(text).expect_err("it is none");
    assert_eq!(said("20"), "needs a unit; write \"20ms\", \"20s\" or \"20m\", as you mean it");
    assert!(said("much").starts_with("isn't known; write an amount of work such as"), "{}", said("much"));
    assert!(config::capacity("0s").is_err() && config::capacity("").is_err());
}

#[test]
fn gates_must_not_collide() {
    let said = complaints(
        "[[gate]]\nupstream = \"a:5432\"\n[[gate]]\nupstream = \"b:5432\"\nlisten = \"127.0.0.1:6432\"\n",
    );
    assert_eq!(
        said,
        "g.toml:3: gate 2: name: another gate has this name; names must be unique\n\
         g.toml:5: gate 2: listen = \"127.0.0.1:6432\": another gate listens on 127.0.0.1:6432"
    );
}

#[test]
fn addresses_that_no_two_sockets_can_have_collide_and_no_others() {
    let both = |one: &str, other: &str| {
        let gate = |name: &str, listen: &str| {
            format!("[[gate]]\nname = \"{name}\"\nupstream = \"db:5432\"\nlisten = \"{listen}\"\n")
        };
        let text = gate("a", one) + &gate("b", other);
        parse(Origin::File("g.toml".into()), &text).err().map(|errors| errors.to_string())
    };
    let everywhere = ["0.0.0.0:6000", "[::]:6000"];
    for host in ["127.0.0.1:6000", "localhost:6000", "db.internal:6000", "10.0.0.1:6000"] {
        for all in everywhere {
            let said = both(all, host).unwrap_or_else(|| panic!("{all} and {host}"));
            assert!(said.ends_with(&format!("another gate listens on {all}")), "{said}");
            assert!(both(host, all).is_some(), "{host} and {all}");
        }
    }
    assert!(both("[::]:6000", "[::1]:6000").is_some() && both("0.0.0.0:6000", "[::]:6000").is_some());
    assert!(both("127.0.0.1:6000", "localhost:6000").is_some());
    for (one, other) in [
        ("0.0.0.0:6000", "[::1]:6000"),
        ("0.0.0.0:6000", "127.0.0.1:6001"),
        ("127.0.0.1:6000", "127.0.0.2:6000"),
        ("0.0.0.0:0", "127.0.0.1:0"),
    ] {
        assert_eq!(both(one, other), None);
    }
    let itself = complaints("[[gate]]\nupstream = \"127.0.0.1:6432\"\nlisten = \"0.0.0.0:6432\"\n");
    assert!(itself.contains("is the gate itself"), "{itself}");
    let far = "[[gate]]\nupstream = \"db:6432\"\nlisten = \"0.0.0.0:6432\"\n";
    assert!(parse(Origin::File("g.toml".into()), far).is_ok(), "another machine may have the port");
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_one() {
    let unknown = |line: &str| {
        let said = complaints(&format!("[[gate]]\nupstream = \"db:5432\"\n{line}\n"));
        said.strip_prefix("g.toml:3: gate: ").unwrap_or_else(|| panic!("{said:?}")).to_owned()
    };
    assert_eq!(
        unknown("queue_timout = \"1s\""),
        "queue_timout: there is no such key; did you mean `queue_timeout`?"
    );
    assert_eq!(unknown("Queue-Max = 1"), "Queue-Max: there is no such key; did you mean `queue_max`?");
    assert_eq!(
        unknown("default_pool_size = 20"),
        "default_pool_size: there is no such key; `connections` is the budget of server connections"
    );
    assert_eq!(
        unknown("sslmode = \"require\""),
        "sslmode: there is no such key; `tls_mode` is for clients, `upstream_tls_mode` for the server"
    );
    assert_eq!(unknown("frobnicate = 1"), "frobnicate: there is no such key");
    assert_eq!(
        unknown("memory_max = 64"),
        "memory_max: there is no such key; `memory_max` belongs below [process]"
    );
    assert!(!unknown("password = \"hunter2\"").contains("hunter2"));
}

#[test]
fn keys_and_sections_in_the_wrong_place_are_pointed_out() {
    let gate = "[[gate]]\nupstream = \"db:5432\"\n";
    assert_eq!(
        complaints(&format!("connections = 5\n{gate}")),
        "g.toml:1: connections: there is no such key; `connections` belongs below a [[gate]]"
    );
    assert_eq!(
        complaints(&format!("[logs]\n{gate}")),
        "g.toml:1: logs: there is no such key; did you mean `log`?"
    );
    assert_eq!(
        complaints("[gate]\nupstream = \"db:5432\"\n"),
        "g.toml:1: gate: isn't a list of gates; write [[gate]] with an `upstream` below (two brackets: there may be several)"
    );
    assert_eq!(
        complaints("gate = [1]\n"),
        "g.toml:1: a gate isn't a table; write [[gate]] with an `upstream` below"
    );
    assert_eq!(
        complaints(&format!("log = 1\n{gate}")),
        "g.toml:1: log: isn't a table; write it once, as [log] with its keys below"
    );
    assert_eq!(complaints(""), "g.toml: there is no gate; write [[gate]] with an `upstream` below");
}

#[test]
fn more_gates_than_the_maximum_are_refused() {
    let text: String = (0..65)
        .map(|n| {
            format!("[[gate]]\nname = \"g{n}\"\nlisten = \"localhost:{}\"\nupstream = \"db:5432\"\n", n + 1)
        })
        .collect();
    assert_eq!(complaints(&text), "g.toml: there are more than 64 gates");
    let (fits, _) = text.rsplit_once("[[gate]]").unwrap();
    assert_eq!(parse(Origin::CommandLine, fits).unwrap().gates.len(), 64);
}

#[test]
fn all_errors_are_told_at_once_in_the_order_of_the_lines() {
    let said = complaints(
        "[[gate]]\nqueue_max = -1\nconections = 5\nupstream = \"db\"\norder = \"lifo\"\n[admin]\nlisten = 1\n",
    );
    let lines: Vec<_> = said.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["g.toml:2", "g.toml:3", "g.toml:4", "g.toml:5", "g.toml:7"], "{said}");
}

#[test]
fn errors_of_syntax_are_told_with_their_lines_and_nothing_else() {
    let said = complaints("[[gate]]\nupstream = db:5432\nqueue_max = -1\nname = \"x\n");
    assert!(said.starts_with("g.toml:2: isn't TOML: "), "{said}");
    assert!(said.contains("\ng.toml:4: isn't TOML: "), "{said}");
    assert!(!said.contains("queue_max"), "{said}");
    let twice = complaints("[[gate]]\nupstream = \"db:5432\"\nupstream = \"db:5433\"\n");
    assert_eq!(twice, "g.toml:3: isn't TOML: duplicate key");
    // One slip is one error.
    let said = complaints("[[gate]]\nupstream = \"db:5432\"\nqueue_max = = 5\n");
    assert!(said.starts_with("g.toml:3: isn't TOML: ") && said.lines().count() == 1, "{said}");
    assert!(said.ends_with("; a line is `key = value`, and texts are in quotes"), "{said}");
}

#[test]
fn a_long_list_of_errors_is_cut() {
    let keys: String = (0..150).map(|n| format!("zz{n} = 1\n")).collect();
    let said = complaints(&format!("[[gate]]\nupstream = \"db:5432\"\n{keys}"));
    assert_eq!(said.lines().count(), 101);
    assert!(said.ends_with("and 50 more"));
}

#[test]
fn a_long_value_is_cut() {
    let said = of_gate_raw(&format!("order = \"{}\"", "x".repeat(500)));
    assert!(said.contains("xxx…: isn't known"), "{said}");
}

fn of_gate_raw(line: &str) -> String {
    complaints(&format!("[[gate]]\nupstream = \"db:5432\"\n{line}\n"))
}

#[test]
fn flags_are_named_as_flags() {
    let flags = [
        ("upstream", "db".to_owned()),
        ("queue_timeout", "120".to_owned()),
        ("connections", "many".to_owned()),
        ("name", "my shop".to_owned()),
    ];
    assert_eq!(
        config::from_flags(&flags, Some("6433")).unwrap_err().to_string(),
        "--admin \"6433\": has no host; write \"127.0.0.1:6433\"\n\
         --upstream \"db\": has no port; write \"db:5432\"\n\
         --queue-timeout 120: needs a unit; write \"120ms\", \"120s\" or \"120m\", as you mean it\n\
         --connections \"many\": isn't a number of connections; write a whole number, or \"auto\"\n\
         --name \"my shop\": can't be a name; write letters, digits, - and _, at most 64"
    );
    let injected = [("upstream", "db:5432\"\nconnections = 5".to_owned())];
    assert!(config::from_flags(&injected, None).is_err());
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let said = config::load("/nonexistent/g.toml".as_ref()).unwrap_err().to_string();
    assert!(said.starts_with("/nonexistent/g.toml: cannot be read: "), "{said}");
}

#[test]
fn authentication_must_fit_together() {
    assert_each(&[
        ("auth = \"any\"", "isn't known; write \"relay\" or \"scram-sha-256\" or \"md5\" or \"trust\""),
        (
            "auth = \"md5\"",
            "knows nobody: there is neither a users_file nor an auth_user; write users_file = \
             \"/etc/gatekeeper/users.txt\"",
        ),
        (
            "users_file = \"u\"",
            "has no meaning with auth = \"relay\"; write auth = \"scram-sha-256\", or leave it out",
        ),
        ("users_file = \"\"", "is empty; leave it out"),
        (
            "auth_query = \"SELECT 1\"",
            "has no $1; the user's name is its first parameter: … WHERE rolname = $1",
        ),
        ("login_failures_max = \"many\"", "isn't a bound; write a whole number, or \"none\""),
        ("login_failures_max = 1000001", "must be from 0 to 1000000"),
    ]);
    let with = |lines: &str| complaints(&format!("[[gate]]\nupstream = \"db:5432\"\n{lines}"));
    let query = with("auth = \"md5\"\nusers_file = \"u\"\nauth_query = \"SELECT $1\"\n");
    assert!(query.ends_with("needs an auth_user; write auth_user, whose right it is to ask"), "{query}");
    let mysql = "protocol = \"mysql\"\nusers_file = \"u\"\n";
    let query = with(&format!("{mysql}auth_query = \"SELECT ?\"\n"));
    assert!(query.ends_with("needs an auth_user; write auth_user, whose right it is to ask"), "{query}");
    let query = with(&format!("{mysql}auth_user = \"a\"\nauth_query = \"SELECT $1\"\n"));
    assert!(query.contains("has no ?"), "{query}");
    let open = with("listen = \"0.0.0.0:6432\"\nauth = \"trust\"\nusers_file = \"u\"\n");
    assert!(open.contains("lets everybody in who can reach `listen`, as anybody"), "{open}");
    assert!(with("auth_file = \"u\"\n").contains("`users_file` names who may log in"));
}

#[test]
fn keys_of_tls_must_fit_together() {
    let of = |lines: &str| {
        let said = complaints(&format!("[[gate]]\nupstream = \"db:5432\"\n{lines}\n"));
        said.strip_prefix("g.toml:3: gate: ").expect("a line's complaint").to_owned()
    };
    for (lines, expected) in [
        ("tls_mode = \"require\"", "tls_mode = \"require\": needs a certificate; write tls_cert and tls_key"),
        ("tls_cert = \"c\"", "tls_cert = \"c\": is of no use without `tls_key`"),
        ("tls_key = \"k\"", "tls_key = \"k\": is of no use without `tls_cert`"),
        ("tls_cert = \"\"\ntls_key = \"k\"", "tls_cert = \"\": is empty; write a path"),
        (
            "tls_mode = \"verify-full\"\ntls_cert = \"c\"\ntls_key = \"k\"",
            "tls_mode = \"verify-full\": needs an authority to verify by; write tls_client_ca",
        ),
        ("tls_client_ca = \"a\"", "tls_client_ca = \"a\": has no meaning without TLS"),
        (
            "upstream_tls_mode = \"verify-ca\"",
            "upstream_tls_mode = \"verify-ca\": needs an authority to verify by",
        ),
        (
            "upstream_tls_ca = \"a\"\nupstream_tls_mode = \"prefer\"",
            "upstream_tls_ca = \"a\": has no meaning where TLS may be left out; write upstream_tls_mode = \"verify-full\"",
        ),
        (
            "upstream_tls_mode = \"on\"",
            "upstream_tls_mode = \"on\": isn't known; write \"disable\" or \"allow\"",
        ),
        ("dns_ttl = 15", "dns_ttl = 15: needs a unit; write \"15ms\", \"15s\" or \"15m\", as you mean it"),
    ] {
        assert!(of(lines).starts_with(expected), "{lines}: {}", of(lines));
    }
    let socket = complaints("[[gate]]\nupstream = \"/tmp\"\nupstream_tls_mode = \"require\"\n");
    assert!(socket.contains("has no meaning: `upstream` is a Unix socket"), "{socket}");
}

#[test]
fn the_modes_of_tls_have_defaults_that_fit() {
    let mode = |lines: &str| {
        let world =
            parse(Origin::File("g.toml".into()), &format!("[[gate]]\n{lines}\n")).expect("a right one");
        (world.gates[0].tls.mode, world.gates[0].upstream_tls.mode)
    };
    use config::{TlsMode, UpstreamTlsMode};
    for (lines, expected) in [
        ("upstream = \"127.0.0.1:5432\"", (TlsMode::Disable, UpstreamTlsMode::Disable)),
        ("upstream = \"/run/postgresql\"", (TlsMode::Disable, UpstreamTlsMode::Disable)),
        ("upstream = \"db:5432\"", (TlsMode::Disable, UpstreamTlsMode::Prefer)),
        ("upstream = \"db:5432\"\nupstream_tls_ca = \"a\"", (TlsMode::Disable, UpstreamTlsMode::VerifyFull)),
        (
            "upstream = \"db:5432\"\ntls_cert = \"c\"\ntls_key = \"k\"",
            (TlsMode::Prefer, UpstreamTlsMode::Prefer),
        ),
    ] {
        assert_eq!(mode(lines), expected, "{lines}");
    }
}

#[test]
fn hints_to_flags_name_flags() {
    let said = |flags: &[(&str, &str)]| {
        let given: Vec<_> = flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        config::from_flags(&given, None).expect_err("it is wrong").to_string()
    };
    let mysql = said(&[("protocol", "mysql"), ("upstream", "127.0.0.1:3306")]);
    assert!(mysql.contains("write --users-file=\"/etc/gatekeeper/users.txt\""), "{mysql}");
    let open = said(&[
        ("upstream", "db:5432"),
        ("listen", "0.0.0.0:6432"),
        ("auth", "trust"),
        ("users_file", "/etc/users"),
    ]);
    assert!(open.contains("set --allow-trust-relay=true if"), "{open}");
    assert!(!mysql.contains("users_file") && !open.contains("allow_trust_relay"), "{mysql}\n{open}");
}
