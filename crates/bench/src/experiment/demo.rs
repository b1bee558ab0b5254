//! The demonstration: two plans, each as a story of what happens, what is seen and why. Nothing is judged
//! here.

mod crowd;
mod sale;
mod story;

use std::fs;
use std::path::Path;

use super::measure::measure;
use super::part::Part;
use super::plan::Plan;
use super::report::{self, Places, Shown};
use super::results::{Book, Otherwise};
use crate::alternate::Display;
use crate::table::paragraph;
use crate::{Error, gatekeeper};

/// One placement: what it is called, what happens, its plan, and its story.
struct Act {
    title: &'static str,
    happens: &'static str,
    plan: fn() -> Result<Plan, Error>,
    told: fn(&Shown) -> String,
}

/// Runs both acts, leaves a page of each below the directory, and tells their stories. The first is told
/// while the second runs.
///
/// # Errors
/// If something doesn't start.
pub async fn run(output: &Path, cpu: Option<usize>, display: &Display) -> Result<String, Error> {
    let sale = act(&sale::ACT, &output.join("flash-sale"), cpu, display).await?;
    display.say(&sale);
    let crowd = act(&crowd::ACT, &output.join("crowd"), cpu, display).await?;
    let again =
        "make demo, or longer, with all figures: bench run flash-sale-arrivals, bench run bounded-response";
    Ok(format!("{crowd}\n  Again    {again}\n"))
}

async fn act(act: &Act, output: &Path, cpu: Option<usize>, display: &Display) -> Result<String, Error> {
    display.say(&format!("{}\n\n{}", act.title, paragraph(act.happens)));
    let mut plan = (act.plan)()?;
    plan.goal.clear();
    let path = output.join("short.jsonl");
    // A demonstration measures what it shows.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io(format!("removing {}", path.display()))(error));
        }
        _ => {}
    }
    let measured = plan.measured(&plan.short);
    let (mut book, _) = Book::open(&path, &measured, &gatekeeper::identity()?, Otherwise::BeginAnew)?;
    measure(&plan, (&plan.short, &Part::default()), &mut book, cpu, display).await?;
    let shown = Shown { plan, form: "short", results: book.results().clone() };
    let text = (act.told)(&shown);
    let written = report::write(&[shown], &Places { page: output.to_owned(), tables: None })?;
    let page = written.first().map_or_else(String::new, |page| page.display().to_string());
    Ok(format!("{text}\n  Page     {page}\n"))
}
