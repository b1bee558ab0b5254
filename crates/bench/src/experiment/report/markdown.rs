//! Each experiment's complete tables in Markdown: renewed between two marks, whatever stands around them.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Shown, rows, tables_asked_for, types};
use crate::Error;
use crate::experiment::verdict;

/// What encloses what is renewed.
const BEGIN: &str = "<!-- what `bench report` writes begins here -->";
const END: &str = "<!-- what `bench report` writes ends here -->";

/// Renews the tables of an experiment's page; makes the page if it isn't there.
pub(super) fn renew(shown: &Shown, directory: &Path) -> Result<PathBuf, Error> {
    let path = directory.join(format!("{}.md", shown.plan.name));
    let before = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("# {}\n\n{}\n\n{BEGIN}\n{END}\n", shown.plan.name, shown.plan.question)
        }
        Err(error) => return Err(Error::io(format!("reading {}", path.display()))(error)),
    };
    let after = between(&before, &text(shown)).ok_or_else(|| {
        Error::Experiment(format!("{} has no place for tables: the lines {BEGIN} and {END}", path.display()))
    })?;
    fs::write(&path, after).map_err(Error::io(format!("writing {}", path.display())))?;
    Ok(path)
}

/// A text with what stands between the marks replaced.
fn between(text: &str, new: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{new}{END}{after}"))
}

fn text(shown: &Shown) -> String {
    let form = shown.form();
    let part = shown.plan.server.processors;
    let part = part.map_or_else(String::new, |part| format!(" with {part} of a processor"));
    let machine = shown.results.runs().next().map(|(machine, _)| {
        format!(
            "{} processors ({}), {}, {}{part}",
            machine.processors,
            machine.processor,
            machine.kernel,
            machine.server()
        )
    });
    let begun =
        shown.results.runs().next().map(|(_, moment)| moment.time.get(..10).unwrap_or_default().to_owned());
    let mut text = format!(
        "\nThe {} form ({} s for each cell, {}×), {} on {}.\n\n",
        shown.form,
        form.window.0.as_secs_f64(),
        shown.repeated(),
        begun.unwrap_or_default(),
        machine.unwrap_or_default(),
    );
    for (goal, verdict) in shown.plan.goal.iter().zip(verdict::judge(&shown.plan, form, &shown.results)) {
        text += &format!("* {}: **{}**, {}\n", goal.says, verdict.standing.word(), verdict.text);
    }
    let table = rows::rows(shown);
    text += &format!("\n| {} |\n|{}\n", table.header.join(" | "), "---|".repeat(table.header.len()));
    for row in &table.rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    for (name, fact) in rows::facts(shown) {
        text += &format!("\n{name}: {fact}.\n");
    }
    for note in &table.notes {
        text += &format!("\n{note}\n");
    }
    if let Some(types) = types::types(shown) {
        text += "\nEach type of request: mean response time, in brackets as a multiple of direct (of variants that completed 30 at least); CV: standard deviation over mean of what its executions take, as that gate measures it:\n";
        text += &format!("\n| {} |\n|{}\n", types.header.join(" | "), "---|".repeat(types.header.len()));
        for row in &types.rows {
            text += &format!("| {} |\n", row.join(" | "));
        }
    }
    for table in tables_asked_for(shown) {
        text += &format!("\n{}:\n", table.title);
        text += &format!("\n| {} |\n|{}\n", table.header.join(" | "), "---|".repeat(table.header.len()));
        for row in &table.rows {
            text += &format!("| {} |\n", row.join(" | "));
        }
        for note in &table.notes {
            text += &format!("\n{note}\n");
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("# Title\n\nmine\n\n{BEGIN}\nold\n{END}\n\nmine too\n");
        let once = between(&text, "new\n").unwrap();
        assert_eq!(once, format!("# Title\n\nmine\n\n{BEGIN}\nnew\n{END}\n\nmine too\n"));
        assert_eq!(between(&once, "new\n").unwrap(), once);
        assert!(between("# Title\n", "new\n").is_none());
    }
}
