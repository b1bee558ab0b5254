//! The keys as a page of documentation. `docs/reference/scenario.md` is what this generates; a test checks
//! that.

use config::Field;
use config::reader::describe;

use crate::keys::{APPLICATION, GOAL, SCENARIO, SOURCE, SWEEP, TYPE, UPSTREAM};

const HEAD: &str = "\
# Scenario files

<!-- Generated from crates/scenario/src/keys.rs. To write it anew: `UPDATE_REFERENCE=1 cargo test -p scenario --test reference` -->

What `gatekeeper simulate FILE` reads ([guide](../guide/simulate.md)). TOML, with at least one `[[type]]` and one
`[[source]]`. A `[[gate]]` has the [keys of a configuration](config.md); `upstream` isn't required, and keys that have
nothing to do with admission aren't used.

A *distribution of times* is `\"5ms\"` (always that), `\"exponential 5ms\"`, `\"lognormal 5ms cv 0.5\"`,
`\"hyperexponential 5ms cv 3\"`, `\"uniform 1ms to 9ms\"` or `\"pareto 1.1 from 1ms to 10s\"`.
";

/// The page of a scenario's keys.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    let nothing = |_: &Field| String::new();
    describe(&mut page, "`[scenario]`", "The experiment as a whole.", SCENARIO, nothing);
    let sweep =
        "Every gate is run at each of these points. Without this table there is one, as the sources say.";
    describe(&mut page, "`[sweep]`", sweep, SWEEP, nothing);
    describe(&mut page, "`[[type]]`", "A request type.", TYPE, nothing);
    describe(&mut page, "`[[source]]`", "Clients that send alike; there may be several.", SOURCE, nothing);
    let application = "An application between the clients and the gate. It takes the locks of a request (`reads` and `writes` of its type) in the order of the tables' names, then a connection, and gives all back at the end. At each lock requests go in order of arrival, readers too. Without this table clients come straight to the gate.";
    describe(&mut page, "`[application]`", application, APPLICATION, nothing);
    describe(&mut page, "`[upstream]`", "The protected service.", UPSTREAM, nothing);
    let goal = "What every gate has to reach, except the gate that is named `fixed`. Only `make catalogue` judges it.";
    describe(&mut page, "`[goal]`", goal, GOAL, nothing);
    page
}
