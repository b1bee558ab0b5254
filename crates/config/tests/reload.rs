//! The keys of another configuration that take effect while the process runs.

use config::{GATE, Origin, World, parse, reload};

fn world(text: &str) -> World {
    parse(Origin::CommandLine, text).expect("a right configuration")
}

fn gate(lines: &str) -> World {
    world(&format!("[[gate]]\nname = \"shop\"\nupstream = \"db:5432\"\n{lines}\n"))
}

#[test]
fn policies_change_and_are_named() {
    let running = gate("queue_max = 5");
    let asked = gate("queue_max = 7\norder = \"fifo\"\ncapacity = \"2s\"\nmax_clients = 9");
    let reload = reload(&running, &asked).unwrap();
    assert_eq!(reload.world, asked);
    assert!(reload.kept.is_empty(), "{:?}", reload.kept);
    let applied: Vec<_> = reload.applied.iter().map(ToString::to_string).collect();
    assert!(applied.contains(&"gate \"shop\": queue_max = 7 instead of 5".to_owned()), "{applied:?}");
    assert!(
        applied.contains(&"gate \"shop\": capacity = \"2s\" instead of \"auto\"".to_owned()),
        "{applied:?}"
    );
    assert!(applied.iter().any(|change| change.contains("order = \"fifo\"")), "{applied:?}");
}

#[test]
fn what_cannot_change_stays_and_is_named_while_the_rest_changes() {
    let running = world("[log]\nlevel = \"info\"\n[[gate]]\nname = \"shop\"\nupstream = \"db:5432\"");
    let asked = world(
        "[admin]\nlisten = \"none\"\nnames = [\"gk\"]\nsocket = \"/s\"\nsocket_mode = \"0660\"\ntoken_file = \"/t\"\n[log]\n\
         format = \"json\"\nlevel = \"debug\"\n[process]\nmemory_max = 99\n[[gate]]\nname = \"shop\"\nupstream = \"other:5432\"\nlisten = \"0.0.0.0:7000\"\npooling = \"session\"\nkeepalive = \"9s\"\ntypes_max = 3\n\
         state_file = \"/var/lib/x\"\nmode = \"observe\"",
    );
    let reload = reload(&running, &asked).unwrap();
    let keys = |changes: &[config::Change]| changes.iter().map(|change| change.key).collect::<Vec<_>>();
    assert_eq!(keys(&reload.applied), ["token_file", "level", "memory_max", "upstream"]);
    assert_eq!(
        keys(&reload.kept),
        [
            "listen",
            "names",
            "socket",
            "socket_mode",
            "format",
            "listen",
            "mode",
            "keepalive",
            "state_file",
            "types_max",
            "pooling"
        ]
    );
    assert_eq!(reload.world.gates[0].listen, running.gates[0].listen);
}

#[test]
fn the_reference_says_of_each_key_what_a_reload_does() {
    let running = gate("");
    let asked = world(
        "[[gate]]\nname = \"shop\"\nlisten = \"0.0.0.0:1\"\nupstream = \"x:1\"\nconnections = 9\ncapacity = \"20s\"\n\
         long_limit = 2\norder = \"fifo\"\ncost = \"ewma\"\ncost_window = 19\nqueue_max = 0\nqueue_timeout = \"90s\"\nafter_stall = \"in-order\"\n\
         mode = \"observe\"\npooling = \"session\"\npinned_max = 9\nmax_clients = 7\nlogin_timeout = \"1s\"\n\
         connect_timeout = \"2s\"\nlogins_max = 3\nkeepalive = \"4s\"\nallow_trust_relay = true\n\
         on_disconnect = \"cancel\"\ndrain_timeout = \"0s\"\ntypes_max = 5\nsuspend_after = \"0s\"\n\
         state_file = \"/x\"\ntrace_file = \"/y\"\ntrace_max = 2\ntrace_full = \"rotate\"\nadmin_users = \"ann\"\nstats_users = [\"bob\"]\nadmin_database = \"d\"",
    );
    let reload = reload(&running, &asked).unwrap();
    for (changes, reloadable) in [(&reload.applied, true), (&reload.kept, false)] {
        for change in changes {
            let field = GATE.iter().find(|field| field.key == change.key).unwrap();
            assert_eq!(field.reloadable, reloadable, "{change}");
        }
    }
    assert!(reload.applied.len() > 15 && reload.kept.len() == 9, "{:?}", reload.kept);
}

#[test]
fn gates_that_come_and_go_are_named_and_change_nothing() {
    let running = gate("");
    let asked = world("[[gate]]\nname = \"new\"\nupstream = \"db:5432\"");
    let reload = reload(&running, &asked).unwrap();
    assert_eq!(reload.world.gates, running.gates);
    let kept: Vec<_> = reload.kept.iter().map(ToString::to_string).collect();
    assert_eq!(kept, ["gate \"new\" is new", "gate \"shop\" is gone"]);
}

#[test]
fn a_gate_in_front_of_itself_is_refused() {
    let running = gate("listen = \"127.0.0.1:7000\"");
    let asked =
        world("[[gate]]\nname = \"shop\"\nlisten = \"127.0.0.1:8000\"\nupstream = \"127.0.0.1:7000\"");
    let error = reload(&running, &asked).unwrap_err();
    assert!(error.contains("is where the gate listens"), "{error}");
}
