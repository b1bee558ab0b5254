//! A pool gives up connections with outdated defaults of a role or database, and those to a database that is
//! to be dropped.

mod gate;
mod support;

use gate::Scene;
use gate::client::Client;

#[test]
fn a_new_login_gets_the_defaults_that_hold_now() {
    let scene = Scene::start("alice", &["connections = 2"]);
    let mut old = scene.client();
    old.run("CREATE TABLE t (x int)");
    for (change, setting, value) in [
        ("ALTER ROLE alice SET statement_timeout = '71s'", "statement_timeout", "71s"),
        ("ALTER DATABASE postgres SET lock_timeout = '72s'", "lock_timeout", "72s"),
        ("ALTER ROLE alice IN DATABASE postgres SET statement_timeout = '73s'", "statement_timeout", "73s"),
        ("ALTER ROLE alice IN DATABASE postgres RESET ALL", "statement_timeout", "71s"),
    ] {
        scene.setup(change);
        let mut new = scene.client();
        for _ in 0..3 {
            assert_eq!(new.column(&format!("SHOW {setting}")), [value], "{change}");
        }
        // A connection that was in use while the defaults changed is retired, too.
        old.run("INSERT INTO t VALUES (1)");
        assert_eq!(new.column(&format!("SHOW {setting}")), [value], "{change}");
    }
}

#[test]
fn a_database_that_all_clients_have_left_can_be_renamed_copied_and_dropped() {
    let scene = Scene::start("bob", &["connections = 4"]);
    scene.setup("CREATE DATABASE shop");
    for command in
        ["CREATE DATABASE copy TEMPLATE shop", "ALTER DATABASE shop RENAME TO store", "DROP DATABASE store"]
    {
        let database = if command.starts_with("DROP") { "store" } else { "shop" };
        let mut client = Client::login(scene.gate.port(), "bob", database);
        client.run("SELECT 1");
        drop(client);
        // PostgreSQL itself waits for 5 s until others have left the database.
        scene.setup(command);
    }
}
