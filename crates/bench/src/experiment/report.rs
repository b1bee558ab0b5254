//! What came out, for people who run a database: one page that needs nothing beside itself, pictures, and
//! each experiment's tables in Markdown.

mod anatomy;
mod breakdown;
mod convergence;
mod curves;
mod html;
mod markdown;
mod pages;
mod picture;
mod rows;
mod service;
mod types;

use std::fs;
use std::path::{Path, PathBuf};

use super::plan::{Form, Metric, Plan, Show};
use super::results::Results;
use crate::Error;
use picture::{Fonts, Picture};
use rows::Table;

/// The page's file.
const PAGE: &str = "report.html";

/// An experiment to show.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its plan.
    pub plan: Plan,
    /// The form whose results are shown: `short` or `full`.
    pub form: &'static str,
    /// Its results.
    pub results: Results,
}

impl Shown {
    /// The form itself.
    pub fn form(&self) -> &Form {
        if self.form == "full" { &self.plan.full } else { &self.plan.short }
    }

    /// How often cells were measured, at most: a run may have asked for fewer repetitions than its plan has.
    pub fn repeated(&self) -> usize {
        self.results.cells().map(|(cell, _)| cell.repetition as usize + 1).max().unwrap_or(0)
    }

    /// Whether a goal is about this figure.
    fn is_judged(&self, metric: Metric) -> bool {
        self.plan.goal.iter().any(|goal| goal.metric == metric)
    }
}

/// Where it goes.
#[derive(Clone, Debug)]
pub struct Places {
    /// The directory of the page and the pictures.
    pub page: PathBuf,
    /// The directory of pages whose tables are renewed.
    pub tables: Option<PathBuf>,
}

/// Writes all of it; returns the files.
///
/// # Errors
/// If a picture can't be drawn or a file can't be written.
pub fn write(shown: &[Shown], places: &Places) -> Result<Vec<PathBuf>, Error> {
    let failed = |path: &Path| Error::io(format!("writing {}", path.display()));
    fs::create_dir_all(&places.page).map_err(failed(&places.page))?;
    let fonts = Fonts::of_the_system();
    let mut written = Vec::new();
    let mut sections = Vec::new();
    for one in shown {
        let mut pictures = Vec::new();
        let others =
            curves::picture(one).into_iter().chain(curves::loads(one)).chain(pictures_asked_for(one));
        for (name, picture) in picture::pictures(one).into_iter().chain(others) {
            let svg = picture.draw()?;
            let path = places.page.join(format!("{name}.png"));
            if let Some(bytes) = fonts.render(&svg)? {
                fs::write(&path, bytes).map_err(failed(&path))?;
                written.push(path);
            }
            pictures.push(svg);
        }
        if let Some(tables) = &places.tables {
            written.push(markdown::renew(one, tables)?);
        }
        sections.push((one, pictures));
    }
    let path = places.page.join(PAGE);
    fs::write(&path, html::page(&sections, fonts.are_missing())).map_err(failed(&path))?;
    written.insert(0, path);
    Ok(written)
}

/// The tables that a plan asks for (`show`), in its order; none of what wasn't measured.
fn tables_asked_for(shown: &Shown) -> Vec<Table> {
    let table = |show: &Show| match show {
        Show::ServiceTimes => service::table(shown),
        Show::Convergence => convergence::table(shown),
        Show::Anatomy => anatomy::table(shown),
        Show::Breakdown => breakdown::table(shown),
    };
    shown.plan.show.iter().map(table).filter(|table| !table.rows.is_empty()).collect()
}

/// The pictures that a plan asks for, with their names.
fn pictures_asked_for(shown: &Shown) -> Vec<(String, Picture)> {
    let picture = |show: &Show| match show {
        Show::ServiceTimes | Show::Anatomy => Vec::new(),
        Show::Convergence => convergence::pictures(shown),
        Show::Breakdown => breakdown::pictures(shown),
    };
    shown.plan.show.iter().flat_map(picture).collect()
}

#[cfg(test)]
mod tests;
