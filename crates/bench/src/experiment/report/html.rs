//! The page: everything in one file, nothing asked of any other.

use super::rows::Table;
use super::{Shown, rows, tables_asked_for, types};
use crate::experiment::plan::Expected;
use crate::experiment::runner;
use crate::experiment::verdict::{self, Standing, Verdict};
use crate::table::count;

/// How it looks.
const STYLE: &str = include_str!("page.css");

/// How the figures are computed, for every experiment.
const FIGURES: &str = "<h2 id=\"figures\">How the figures are computed</h2>\
<p>The variants take turns (A B C, A B C, …), each cell on a server at rest, with the process in between started anew: a gate knows \
nothing when its warm-up begins. A value is the mean of the repetitions, ± is half of its 90 % confidence interval (Student's t). A ratio \
is the mean of the ratios of cells that were measured one after the other.</p>\
<p><b>Completed per second</b> counts what was completed within the window. <b>In time</b> is the papers' metric: the mean response time \
of those only. <b>All</b> is the mean over every request that was under way in the window: one that gave up, was refused or failed is \
charged the full time-out, and retries are part of the time. <b>Per CPU second</b> is for each second of processor time that the \
server itself used: on a shared machine hundreds of its processes win more of a processor than twenty. <b>N − X(R+Z)</b> is the part of the clients that the papers' metric \
doesn't account for (Little's law): where it is large, <em>in time</em> tells of survivors only.</p>";

/// The page of these experiments with their pictures.
pub(super) fn page(sections: &[(&Shown, Vec<String>)], fonts_are_missing: bool) -> String {
    let mut body = String::from(
        "<h1>Gatekeeper: experiments</h1>\n<p class=\"soft\">What a service does under overload, without a gate and with \
         one: a plan a section.</p>\n",
    );
    body += &overview(sections);
    for (shown, pictures) in sections {
        body += &section(shown, pictures);
    }
    body += FIGURES;
    if fonts_are_missing {
        body += "<p class=\"soft\">No font was found on the system that drew this, so there are no PNGs beside this page.</p>";
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Gatekeeper: experiments</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
}

fn overview(sections: &[(&Shown, Vec<String>)]) -> String {
    let mut text = String::from(
        "<div class=\"wide overview\"><table>\n<tr><th>Experiment</th><th>Question</th><th>Goals</th></tr>\n",
    );
    for (shown, _) in sections {
        let judged = verdict::judge(&shown.plan, shown.form(), &shown.results);
        // What a control reaches is there to compare with.
        let own = shown.plan.goal.iter().zip(judged).filter(|(goal, _)| !goal.is_of_a_control());
        let verdicts: Vec<Verdict> = own.map(|(_, verdict)| verdict).collect();
        let of = |wanted: &[Standing]| {
            verdicts.iter().filter(|verdict| wanted.contains(&verdict.standing)).count()
        };
        let reached = of(&[Standing::Reached, Standing::Barely]);
        let open = of(&[Standing::Open]);
        let mut goals = format!("{reached} of {} reached", verdicts.len() - open);
        if open > 0 {
            goals += &format!(", {open} not measured");
        }
        if verdicts.is_empty() {
            goals = "none".to_owned();
        }
        let class = if reached + open == verdicts.len() { "reached" } else { "missed" };
        text += &format!(
            "<tr class=\"first\"><td><a href=\"#{name}\">{name}</a></td><td>{}</td><td class=\"{class}\">{goals}</td></tr>\n",
            escaped(&shown.plan.question),
            name = escaped(&shown.plan.name),
        );
    }
    text + "</table></div>\n"
}

fn section(shown: &Shown, pictures: &[String]) -> String {
    let plan = &shown.plan;
    let mut text = format!(
        "<section>\n<h2 id=\"{name}\">{name}</h2>\n<p class=\"question\">{}</p>\n",
        escaped(&plan.question),
        name = escaped(&plan.name),
    );
    text += "<ul class=\"goals\">\n";
    for (goal, verdict) in plan.goal.iter().zip(verdict::judge(plan, shown.form(), &shown.results)) {
        let (class, word) = (class(&verdict), verdict.standing.word());
        text += &format!(
            "<li><span class=\"badge {class}\">{word}</span><span>{}</span><span class=\"found\">{}</span></li>\n",
            escaped(&goal.says),
            escaped(&verdict.text),
        );
    }
    text += "</ul>\n";
    for picture in pictures {
        text += &format!("<figure>\n{}\n</figure>\n", inline(picture));
    }
    if !plan.expected.is_empty() {
        let said = |expected: &Expected| {
            let Expected { source, variant, clients, throughput } = expected;
            format!("{variant} with {clients} clients {throughput}/s ({})", escaped(source))
        };
        let all: Vec<String> = plan.expected.iter().map(said).collect();
        text += &format!("<p class=\"soft\">Circles were found elsewhere: {}.</p>\n", all.join("; "));
    }
    text += &table(shown);
    text += &format!("<h3>How it was done</h3>\n<p>{}</p>\n", escaped(&plan.method));
    text += &circumstances(shown);
    text + "</section>\n"
}

/// How a goal's standing looks.
const fn class(verdict: &Verdict) -> &'static str {
    match verdict.standing {
        Standing::Reached => "reached",
        Standing::Barely => "barely",
        Standing::Nearly => "nearly",
        Standing::Missed => "missed",
        Standing::Open => "open",
    }
}

/// A picture without what only a file needs.
fn inline(svg: &str) -> &str {
    svg.find("<svg").map_or(svg, |at| &svg[at..])
}

fn table(shown: &Shown) -> String {
    let rows::Rows { header, rows, notes } = rows::rows(shown);
    let mut text = grid(header, rows);
    for note in notes {
        text += &format!("<p class=\"notes\">{}</p>\n", escaped(&note));
    }
    if let Some(types::Types { header, rows }) = types::types(shown) {
        text += "<details><summary>Each type of request: mean response time, in brackets as a multiple of direct, and its coefficient of variation</summary>\n";
        text += &grid(header.iter().map(String::as_str), rows);
        text += "</details>\n";
    }
    for Table { title, header, rows, notes } in tables_asked_for(shown) {
        text += &format!("<h3>{}</h3>\n", escaped(&title));
        text += &grid(header.iter().map(String::as_str), rows);
        for note in notes {
            text += &format!("<p class=\"notes\">{}</p>\n", escaped(&note));
        }
    }
    text
}

fn grid<'a>(header: impl IntoIterator<Item = &'a str>, rows: Vec<Vec<String>>) -> String {
    let mut text = String::from("<div class=\"wide\"><table>\n<tr>");
    for title in header {
        text += &format!("<th>{}</th>", escaped(title));
    }
    text += "</tr>\n";
    let mut last = String::new();
    for row in rows {
        // A line above the first of each load.
        let class = if row[0] == last { "" } else { " class=\"first\"" };
        last.clone_from(&row[0]);
        text += &format!("<tr{class}>");
        for cell in row {
            text += &format!("<td>{}</td>", escaped(&cell));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

fn circumstances(shown: &Shown) -> String {
    let form = shown.form();
    let results = &shown.results;
    let mut facts = vec![(
        "form",
        format!(
            "{}: {} cells of {} s after {} s of warm-up, each {} times; {} are measured",
            shown.form,
            runner::cells(form).len(),
            form.window.0.as_secs_f64(),
            form.warm_up.0.as_secs_f64(),
            form.repetitions,
            results.cells().count(),
        ),
    )];
    facts.extend(rows::facts(shown));
    if let Some(calibrated) = results.calibrated() {
        facts.push(("calibrated", format!("{} per second", count(calibrated))));
    }
    for variant in &form.variants {
        if let Some((tried, best)) = results.pool(variant) {
            let tried: Vec<String> =
                tried.iter().map(|(pool, rate)| format!("{pool}: {}/s", count(*rate))).collect();
            facts.push(("pools", format!("{variant}: {} (best: {best})", tried.join(", "))));
        }
    }
    if let Some((machine, begun)) = results.runs().next() {
        let gib = machine.memory as f64 / f64::from(1 << 30);
        facts.push((
            "machine",
            format!(
                "{} × {}, {gib:.0} GiB, {}; the server has {} where there are two",
                machine.processors,
                machine.processor,
                machine.kernel,
                servers_processor(shown.plan.server.processors)
            ),
        ));
        let named = |version: &str| if version.is_empty() { "none" } else { version }.to_owned();
        let (pgbouncer, pgpool) = (named(&machine.pgbouncer), named(&machine.pgpool));
        facts.push((
            "programs",
            format!(
                "{}, PgBouncer {pgbouncer}, pgpool-II {pgpool}, Gatekeeper {}",
                machine.server(),
                machine.gatekeeper
            ),
        ));
        let load = |load: [f64; 3]| load.map(|one| format!("{one:.2}")).join(", ");
        let mut time = format!("{}, load average {}", begun.time, load(begun.load));
        if let Some(end) = results.end() {
            let stolen = end.stolen_since(begun) * 100.0;
            time += &format!("; until {}, load average {}, {stolen:.1} % stolen", end.time, load(end.load));
        }
        let runs = results.runs().count();
        if runs > 1 {
            time += &format!("; in {runs} runs");
        }
        facts.push(("time", time));
    }
    if let Some(failure) = results.cells().find_map(|(_, measured)| measured.first_failure.as_ref()) {
        facts.push(("first failure", failure.clone()));
    }
    let facts: String =
        facts.iter().map(|(name, fact)| format!("<dt>{name}</dt><dd>{}</dd>\n", escaped(fact))).collect();
    format!("<dl>\n{facts}</dl>\n")
}

/// What the server has for itself.
fn servers_processor(part: Option<f64>) -> String {
    part.map_or_else(
        || "a processor of its own".to_owned(),
        |part| format!("{part} of a processor of its own"),
    )
}

/// A text as HTML has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
