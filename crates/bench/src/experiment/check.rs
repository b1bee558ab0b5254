//! Checks a plan that is well formed: names that it uses are there, times and numbers of clients are within
//! bounds.

use std::path::Path;
use std::time::Duration;

use testbed::database::Database;

use super::busy;
use super::complaint::{Complaints, Judge, nearest};
use super::offline;
use super::plan::{
    Connect, Form, Goal, Load, Metric, PEERS, Pages, Place, Plan, Request, Server, Show, Site, Tables, Who,
    has_best, has_sessions,
};
use super::schedule::{self, MIXES};
use super::words::Reference;
use super::yardstick;
use crate::load::{REFUSED, VALUES_MAX};
use crate::shop;

/// The variants that every plan knows.
pub const VARIANTS: [&str; 8] = [
    "direct",
    "pgbouncer-same-pool",
    "pgbouncer-best-pool",
    "pgpool-same-pool",
    "pgpool-best-pool",
    "gate-fifo",
    "gate",
    "gate-calibrated",
];
/// The longest that the short form may take.
pub const SHORT_MAX: Duration = Duration::from_secs(60);
/// The longest that the full form may take.
pub const FULL_MAX: Duration = Duration::from_secs(90 * 60);
/// The most clients: one client program drives them, and each may be a process of the server.
pub(super) const CLIENTS_MAX: usize = 5_000;

/// Checks a plan that was read from this text.
pub(super) fn check(plan: &Plan, file: &Path, text: &str) -> Result<(), Complaints> {
    let mut judge = Judge::new(text);
    workload(plan, &mut judge);
    check_peers(plan, &mut judge);
    check_show(plan, &mut judge);
    for (name, form, most) in [("short", &plan.short, SHORT_MAX), ("full", &plan.full, FULL_MAX)] {
        check_form(plan, (name, form), most, &mut judge);
    }
    offline::check(plan, &mut judge);
    for (index, goal) in plan.goal.iter().enumerate() {
        check_goal(plan, index, goal, &mut judge);
    }
    for (index, expected) in plan.expected.iter().enumerate() {
        check_variant(plan, &format!("expected.{index}.variant"), &expected.variant, &mut judge);
    }
    for name in plan.variant.keys().filter(|name| VARIANTS.contains(&name.as_str())) {
        judge.complain(&format!("variant.{name}"), "is the name of a variant that every plan knows", None);
    }
    judge.verdict(file)
}

fn check_show(plan: &Plan, judge: &mut Judge<'_>) {
    if plan.workload.site.is_some() {
        return;
    }
    for (index, _) in plan.show.iter().enumerate().filter(|(_, show)| **show != Show::Anatomy) {
        let hint = "it is about the pages of [workload.site]";
        judge.complain(&format!("show.{index}"), "there are no pages", Some(hint));
    }
}

fn workload(plan: &Plan, judge: &mut Judge<'_>) {
    let workload = &plan.workload;
    if let Some(origin) = &workload.origin {
        check_origin(plan, origin, judge);
    } else if let Some(site) = &workload.site {
        check_site(plan, site, judge);
    } else if workload.request.is_empty() {
        judge.complain("workload.request", "is empty", Some("write [[workload.request]] for each type"));
    }
    if let Some(Err(reason)) = plan.server.processors.map(Server::part) {
        judge.complain("server.processors", reason, None);
    }
    if workload.timeout.0.is_zero() {
        judge.complain("workload.timeout", "must be more than zero", None);
    }
    for (index, request) in workload.request.iter().enumerate() {
        check_request(&format!("workload.request.{index}"), request, workload.tables, judge);
    }
    let named = workload.bystanders.as_ref().is_some_and(|others| others.application.is_some());
    if named && plan.server.database != Database::Postgres {
        let hint = Some("leave it away, or take PostgreSQL");
        judge.complain("workload.bystanders.application", "is a name that only PostgreSQL has", hint);
    }
    for (index, name) in workload.bystanders.iter().flat_map(|others| &others.beside).enumerate() {
        check_variant(plan, &format!("workload.bystanders.beside.{index}"), name, judge);
    }
    if let Some(errand) = workload.bystanders.as_ref().and_then(|others| others.errand.as_ref()) {
        check_variant(plan, "workload.bystanders.errand.beside", &errand.beside, judge);
        if workload.site.is_none() {
            judge.complain("workload.bystanders.errand", "is for bystanders of a site", None);
        }
    }
    for (index, request) in workload.bystanders.iter().flat_map(|others| &others.request).enumerate() {
        check_request(&format!("workload.bystanders.request.{index}"), request, workload.tables, judge);
    }
}

fn check_origin(plan: &Plan, origin: &Pages, judge: &mut Judge<'_>) {
    let workload = &plan.workload;
    let own = [
        ("workload.site", workload.site.is_some()),
        ("workload.request", !workload.request.is_empty()),
        ("workload.bystanders", workload.bystanders.is_some()),
        ("workload.setup", !workload.setup.is_empty() || !workload.reset.is_empty()),
        ("workload.tables", workload.tables != Tables::None),
        ("workload.connect", workload.connect != Connect::Once),
        ("server", plan.server != Server::default()),
    ];
    for (key, _) in own.iter().filter(|(_, is_there)| *is_there) {
        judge.complain(key, "doesn't go with [workload.origin]", None);
    }
    if !(origin.tried_at.is_finite() && origin.tried_at > 0.0) {
        judge.complain("workload.origin.tried_at", "must be more than zero", None);
    }
    if origin.calm.0.is_zero() {
        judge.complain("workload.origin.calm", "must be more than zero", None);
    }
    for (name, form) in [("short", &plan.short), ("full", &plan.full)] {
        if !form.clients.is_empty() || !form.schedule.is_empty() {
            let hint = "write multiples of its capacity in `overload`";
            judge.complain(&format!("{name}.clients"), "doesn't go with [workload.origin]", Some(hint));
        }
    }
}

fn check_peers(plan: &Plan, judge: &mut Judge<'_>) {
    for (name, settings) in &plan.peer {
        let path = format!("peer.{name}");
        if !PEERS.contains(&name.as_str()) {
            judge.complain(&path, format!("`{name}` is no peer"), nearest(name, &PEERS).as_deref());
        } else if plan.workload.origin.is_none() {
            judge.complain(&path, "is for an origin, and there is none", Some("write [workload.origin]"));
        } else if settings.is_empty() {
            judge.complain(&path, "is empty", Some("write a table for each setting to try"));
        }
    }
}

fn check_site(plan: &Plan, site: &Site, judge: &mut Judge<'_>) {
    let workload = &plan.workload;
    if !MIXES.contains(&site.mix.as_str()) {
        let hint = nearest(&site.mix, &MIXES);
        judge.complain("workload.site.mix", format!("`{}` is no mix", site.mix), hint.as_deref());
    }
    if !(site.think_scale.is_finite() && site.think_scale > 0.0) {
        judge.complain("workload.site.think_scale", "must be more than zero", None);
    }
    if site.session_mean.is_some_and(|mean| mean.0.is_zero()) {
        judge.complain("workload.site.session_mean", "must be more than zero", None);
    }
    let own = [
        ("request", !workload.request.is_empty()),
        // Clients beside a site speak to its database, and may need tables of their own.
        ("bystanders", workload.bystanders.is_some() && site.place == Place::Site),
        ("setup", !workload.setup.is_empty() && workload.bystanders.is_none()),
        ("reset", !workload.reset.is_empty() && workload.bystanders.is_none()),
        ("tables", workload.tables != Tables::None),
        ("connect", workload.connect != Connect::Once),
        ("think", !workload.think.0.is_zero()),
    ];
    for (key, _) in own.iter().filter(|(_, is_there)| *is_there) {
        judge.complain(&format!("workload.{key}"), "doesn't go with [workload.site]", None);
    }
    for (name, form) in [("short", &plan.short), ("full", &plan.full)] {
        if !form.overload.is_empty() {
            let hint = "write numbers of browsers in `clients`";
            judge.complain(&format!("{name}.overload"), "doesn't go with [workload.site]", Some(hint));
        }
    }
}

fn check_request(path: &str, request: &Request, tables: Tables, judge: &mut Judge<'_>) {
    if request.statements.is_empty() {
        if tables != Tables::Shop {
            let hint = "write them, or tables = \"shop\" for the shop's request types";
            judge.complain(&format!("{path}.statements"), "is empty", Some(hint));
        } else if !shop::REQUESTS.contains(&request.name.as_str()) {
            let hint = nearest(&request.name, &shop::REQUESTS);
            let why = "is no request type of the shop, and has no statements";
            judge.complain(&format!("{path}.name"), why, hint.as_deref());
        }
    }
    if !(request.weight.is_finite() && request.weight > 0.0) {
        judge.complain(&format!("{path}.weight"), "must be more than zero", None);
    }
    if request.draw.len() > VALUES_MAX {
        judge.complain(&format!("{path}.draw"), format!("has more than {VALUES_MAX} entries"), None);
    }
    for state in request.retry.iter().filter(|state| state.starts_with(REFUSED)) {
        let why = format!("`{state}` says that there is no room: to send it again at once is a storm");
        judge.complain(&format!("{path}.retry"), why, Some("a refusal is an answer; take it away"));
    }
    for state in request.retry.iter().filter(|state| state.len() != 5) {
        let why = format!("`{state}` is no SQLSTATE");
        judge.complain(&format!("{path}.retry"), why, Some("they have five characters, as \"40P01\""));
    }
}

fn check_form(plan: &Plan, (name, form): (&str, &Form), most: Duration, judge: &mut Judge<'_>) {
    let at = |key: &str| format!("{name}.{key}");
    for (index, variant) in form.variants.iter().enumerate() {
        check_variant(plan, &format!("{name}.variants.{index}"), variant, judge);
        if has_best(variant) && form.pools.is_empty() {
            let why = format!("is empty, and `{variant}` has the best of them");
            judge.complain(&at("pools"), why, Some("write the sizes to try, as [2, 4, 8, 16, 32]"));
        }
        let is_overloaded = form.overload.iter().any(|&factor| form.offers(variant, Load::Overload(factor)));
        if has_sessions(variant) && is_overloaded {
            let why =
                format!("doesn't go with `{variant}`: a client that stays keeps a process of pgpool-II");
            let hint = "take it away, and write numbers of clients";
            judge.complain(&at("overload"), why, Some(hint));
        }
    }
    if form.variants.is_empty() {
        judge.complain(&at("variants"), "is empty", None);
    }
    schedule::check(plan, (name, form), judge);
    if form.filled_for.is_some() && plan.workload.site.is_none() {
        judge.complain(&at("filled_for"), "is for a site, and there is none", Some("write [workload.site]"));
    }
    if form.kept_open && plan.workload.site.is_none() {
        judge.complain(&at("kept_open"), "is for a site, and there is none", Some("write [workload.site]"));
    }
    if form.busy.iter().any(|&part| !(part > 0.0 && part <= busy::PART_MAX)) {
        let hint =
            "0.9 is nine tenths of the time, 3 is three times as many clients as keep the server just busy";
        judge.complain(
            &at("busy"),
            format!("must be more than 0 and at most {}", busy::PART_MAX),
            Some(hint),
        );
    }
    if !form.busy.is_empty() && plan.workload.site.is_none() {
        judge.complain(&at("busy"), "is for the browsers of a site", Some("write numbers of clients"));
    }
    if form.loads().next().is_none() {
        let hint = "write numbers of clients, or multiples in `overload`";
        judge.complain(&at("clients"), "is empty, and so is `overload`", Some(hint));
    }
    if form.clients.iter().any(|&clients| clients > CLIENTS_MAX) {
        judge.complain(&at("clients"), format!("has more than {CLIENTS_MAX}"), None);
    }
    let others_are_alone = plan.workload.bystanders.is_some() && plan.workload.site.is_none();
    if form.clients.contains(&0) && !others_are_alone {
        let hint = "0 clients are for bystanders alone; write [workload.bystanders]";
        judge.complain(&at("clients"), "has 0, and there is nobody else", Some(hint));
    }
    if form.overload.iter().any(|&factor| !(factor.is_finite() && factor > 0.0)) {
        judge.complain(&at("overload"), "must be more than zero", None);
    }
    if !form.overload.is_empty() && form.calibrate.is_none() {
        let hint = "write calibrate = { variant = \"gate\", clients = [16, 64] }";
        judge.complain(&at("overload"), "has nothing to multiply", Some(hint));
    }
    if plan.workload.connect == Connect::ForEachRequest && !form.overload.is_empty() {
        let hint = "its connections stay: write numbers of clients, which connect for each request";
        let why = "is an open loop, and doesn't go with connect = \"for-each-request\"";
        judge.complain(&at("overload"), why, Some(hint));
    }
    for (index, name) in form.overloaded.iter().enumerate().filter(|(_, name)| !form.variants.contains(name))
    {
        let known: Vec<&str> = form.variants.iter().map(String::as_str).collect();
        let hint = nearest(name, &known);
        let why = format!("`{name}` isn't among this form's variants");
        judge.complain(&at(&format!("overloaded.{index}")), why, hint.as_deref());
    }
    if !form.overloaded.is_empty() && form.overload.is_empty() {
        judge.complain(&at("overloaded"), "is there, and nothing is offered in `overload`", None);
    }
    if let Some(calibrate) = &form.calibrate {
        check_variant(plan, &at("calibrate.variant"), &calibrate.variant, judge);
        if calibrate.clients.is_empty() {
            judge.complain(&at("calibrate.clients"), "is empty", None);
        }
    }
    if form.repetitions == 0 || form.window.0.is_zero() {
        let key = if form.repetitions == 0 { "repetitions" } else { "window" };
        judge.complain(&at(key), "must be more than zero", None);
    }
    let takes = plan.takes(form);
    if takes > most {
        let why = format!(
            "takes about {} s, and may take {} s",
            takes.as_secs().max(most.as_secs() + 1),
            most.as_secs()
        );
        judge.complain(name, why, Some("take away variants, loads, repetitions or time"));
    }
}

fn check_variant(plan: &Plan, path: &str, name: &str, judge: &mut Judge<'_>) {
    let before_site = plan.workload.site.as_ref().is_some_and(|site| site.place == Place::Site);
    if (before_site || plan.workload.origin.is_some())
        && (name.starts_with("pgbouncer") || name.starts_with("pgpool"))
    {
        let hint =
            "with `place = \"site\"` write direct, gate-fifo, gate, gate-calibrated or a variant of your own";
        judge.complain(path, format!("`{name}` stands before a database, not before a site"), Some(hint));
    }
    if VARIANTS.contains(&name) || plan.variant.contains_key(name) || plan.peer.contains_key(name) {
        return;
    }
    let own = plan.variant.keys().chain(plan.peer.keys()).map(String::as_str);
    let known: Vec<&str> = VARIANTS.into_iter().chain(own).collect();
    let hint = nearest(name, &known);
    judge.complain(path, format!("`{name}` is no variant"), hint.as_deref());
}

fn check_goal(plan: &Plan, index: usize, goal: &Goal, judge: &mut Judge<'_>) {
    let at = |key: &str| format!("goal.{index}.{key}");
    check_variant(plan, &at("of"), &goal.of, judge);
    match (goal.at_least, goal.at_most) {
        (None, None) => judge.complain(&at("says"), "has no bound", Some("write at_least or at_most")),
        (Some(_), Some(_)) => judge.complain(&at("at_most"), "and `at_least` can't both be there", None),
        _ => {}
    }
    yardstick::check(plan, &at("metric"), goal.metric, judge);
    if goal.group == Who::Bystanders && plan.workload.bystanders.is_none() {
        judge.complain(&at("group"), "there are no bystanders", Some("write [workload.bystanders]"));
    }
    let is_told = plan.workload.origin.is_some() || plan.workload.request.iter().any(|request| request.short);
    if goal.group == Who::Short && !is_told {
        let hint = Some("write [workload.origin], or short = true for a request");
        judge.complain(&at("group"), "there are no short pages", hint);
    }
    if !goal.grace.0.is_zero() && !goal.metric.is_a_time() {
        judge.complain(&at("grace"), "is time, and the metric is none", Some("take it away"));
    }
    match &goal.relative_to {
        Some(Reference::Variant(name)) => check_variant(plan, &at("relative_to"), name, judge),
        Some(Reference::Idle) if !plan.full.clients.contains(&0) => {
            let hint = "write 0 among the full form's clients";
            judge.complain(&at("relative_to"), "no load is idle", Some(hint));
        }
        Some(_) if goal.metric == Metric::Alive => {
            judge.complain(&at("relative_to"), "whether it lives is relative to nothing", None);
        }
        _ => {}
    }
}
