//! The page: its prose with the figures in their places.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::figure::Figure;

/// The prose. A line `{{id}}` is the place of a figure.
pub const TEMPLATE: &str = include_str!("page.md");

/// Draws the figures into `figures/` beside the page, and writes the page.
pub(crate) fn write(path: &Path, template: &str, figures: &[Figure]) -> Result<(), Error> {
    let directory = path.parent().unwrap_or(Path::new("")).join("figures");
    fs::create_dir_all(&directory).map_err(|source| Error::file("make", &directory, source))?;
    for figure in figures {
        figure.draw(&directory)?;
    }
    fs::write(path, fill(template, figures)?).map_err(|source| Error::file("write", path, source))
}

/// Puts every figure in its place.
pub(crate) fn fill(template: &str, figures: &[Figure]) -> Result<String, Error> {
    let mut placed = Vec::new();
    let mut text = String::new();
    for line in template.lines() {
        let id = line.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        match id {
            None => text += line,
            Some(id) => {
                let figure = figures.iter().find(|figure| figure.id == id);
                text += &figure.ok_or_else(|| Error::Page(id.to_owned()))?.text();
                placed.push(id);
            }
        }
        text.push('\n');
    }
    match figures.iter().find(|figure| !placed.contains(&figure.id.as_str())) {
        Some(left_out) => Err(Error::Page(left_out.id.clone())),
        None => Ok(text),
    }
}
