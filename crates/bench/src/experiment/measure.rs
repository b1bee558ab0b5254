//! Measures what is missing of a plan, in the laboratory that its workload asks for.

use super::laboratory::Statements;
use super::machine::Moment;
use super::origin::Pageviews;
use super::part::Part;
use super::plan::{Form, Plan};
use super::results::{Book, Line};
use super::runner;
use super::visits::Visits;
use crate::Error;
use crate::alternate::Display;

/// Sets up what is needed, measures what is missing of a part, and writes it into the book.
///
/// # Errors
/// If something doesn't start, or with the first cell that can't be measured.
pub async fn measure(
    plan: &Plan,
    (form, part): (&Form, &Part),
    book: &mut Book,
    cpu: Option<usize>,
    display: &Display,
) -> Result<(), Error> {
    display.now("starting what is needed");
    let began = |machine| Line::Began { machine, moment: Moment::now() };
    if let Some(pages) = &plan.workload.origin {
        let mut laboratory = Pageviews::set_up(plan, pages, form, cpu).await?;
        book.write(began(Pageviews::machine()?))?;
        runner::run(plan, form, part, &mut laboratory, book, display).await?;
    } else if let Some(site) = &plan.workload.site {
        let mut laboratory = Visits::set_up(plan, site, form, cpu).await?;
        book.write(began(laboratory.machine()?))?;
        runner::run(plan, form, part, &mut laboratory, book, display).await?;
    } else {
        let mut laboratory = Statements::set_up(plan, form, cpu).await?;
        book.write(began(laboratory.machine()?))?;
        runner::run(plan, form, part, &mut laboratory, book, display).await?;
    }
    book.write(Line::Ended { moment: Moment::now() })
}
