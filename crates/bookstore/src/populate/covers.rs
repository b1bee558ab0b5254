//! The books' covers: for each a thumbnail and a large picture, drawn from its title, its author and its
//! subject.
//!
//! What matters to a web server is how large they are. Thumbnails have 5 KB, covers are distributed as the
//! specification has them (`I_IMAGE`): 45 % have 5 KB, 35 % 10 KB, 15 % 50 KB, 4 % 100 KB and 1 % 250 KB,
//! to the byte. The size is made of the drawing (some 2 KB), of the grain of its paper up to [`GRAIN`], and
//! of a comment for the rest.

mod motif;
mod palette;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use self::palette::Palette;
use super::chance::{Chance, Purpose};
use super::progress::Progress;
use super::rows::Rows;
use crate::Error;

/// Bytes of a thumbnail.
pub(crate) const THUMBNAIL: usize = 5 * 1024;
/// Bytes of covers, with how many of a hundred have them.
pub(crate) const COVERS: [(usize, u32); 5] =
    [(5 * 1024, 45), (10 * 1024, 35), (50 * 1024, 15), (100 * 1024, 4), (250 * 1024, 1)];
/// The most bytes that are grain: more of it can't be seen, and costs a browser time.
const GRAIN: usize = 48 * 1024;
/// Width and height of a cover, in its own units.
const WIDTH: i32 = 300;
const HEIGHT: i32 = 450;
/// The most characters of a line of the title, so that it fits.
const LINE: usize = 15;

/// What is painted, and where to.
pub(super) struct Images {
    pub(super) directory: PathBuf,
    pub(super) count: u32,
    pub(super) seed: u64,
}

impl Images {
    /// Writes `thumbnail/N.svg` and `cover/N.svg` for the first books. Blocks.
    ///
    /// # Errors
    ///
    /// If a file can't be written.
    pub(super) fn write(&self, rows: &Rows, progress: &Progress) -> Result<(), Error> {
        let step = progress.step("covers", "books", u64::from(self.count));
        let kinds = ["thumbnail", "cover"].map(|kind| self.directory.join(kind));
        for directory in &kinds {
            fs::create_dir_all(directory).map_err(Error::io(format!("creating {}", directory.display())))?;
        }
        for item in 1..=self.count {
            let mut chance = Chance::of(self.seed, Purpose::Cover, item);
            let size = cover_size(&mut chance);
            let drawing = drawing(rows, item, &mut chance);
            for (directory, size) in kinds.iter().zip([THUMBNAIL, size]) {
                save(&directory.join(format!("{item}.svg")), &grown(&drawing, size, chance.clone()))?;
            }
            step.advance(1);
        }
        step.end(u64::from(self.count));
        Ok(())
    }
}

fn save(path: &Path, picture: &str) -> Result<(), Error> {
    fs::write(path, picture).map_err(Error::io(format!("writing {}", path.display())))
}

/// How large a cover is.
fn cover_size(chance: &mut Chance) -> usize {
    let mut draw = chance.below(100);
    for (size, share) in COVERS {
        if draw < share {
            return size;
        }
        draw -= share;
    }
    THUMBNAIL
}

/// The drawing without grain, open at its end.
fn drawing(rows: &Rows, item: u32, chance: &mut Chance) -> String {
    let book = rows.book(item);
    let (first, last) = rows.author_name(book.author);
    let palette = Palette::of(book.subject, chance);
    let mut svg = String::with_capacity(THUMBNAIL);
    let Palette { ground, ink, .. } = palette;
    write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" role=\"img\"><title>{title}</title><rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"{ground}\"/>",
        title = escaped(&book.title),
    )
    .expect("a string takes everything");
    let lines = wrapped(&book.title);
    // Fonts differ from machine to machine: room for one whose letters are two thirds as wide as high.
    let longest = lines.iter().map(String::len).max().unwrap_or(1) as i32;
    let letters = ((WIDTH - 50) * 3 / (2 * longest)).min(32);
    let step = letters + 5;
    let text_height = step * lines.len() as i32;
    // The title stands above or below the picture.
    let (title_top, top, bottom) = if chance.below(2) == 0 {
        (58, 58 + text_height + 34, HEIGHT - 62)
    } else {
        (HEIGHT - 62 - text_height, 46, HEIGHT - 62 - text_height - 46)
    };
    motif::draw(&mut svg, top.min(bottom - 60), bottom, palette, chance);
    write!(svg, "<g fill=\"{ink}\"><g font-family=\"Georgia,'Times New Roman',serif\" font-size=\"{letters}\" font-weight=\"700\">")
        .expect("a string takes everything");
    for (index, line) in lines.iter().enumerate() {
        let y = title_top + step * index as i32;
        write!(svg, "<text x=\"26\" y=\"{y}\">{}</text>", escaped(line)).expect("a string takes everything");
    }
    write!(
        svg,
        "</g><g font-family=\"Helvetica,Arial,sans-serif\" font-size=\"13\" letter-spacing=\".6\">\
         <text x=\"26\" y=\"{}\">{first} {}</text><text x=\"26\" y=\"24\" font-size=\"9\" letter-spacing=\"2\" opacity=\".75\">{}</text></g></g>\
         <path d=\"M8 0v{HEIGHT}\" stroke=\"#000\" stroke-opacity=\".16\" stroke-width=\"3\"/>",
        HEIGHT - 24,
        escaped(&last),
        escaped(book.subject),
    )
    .expect("a string takes everything");
    svg
}

/// The drawing with so much grain and, if that isn't enough, a comment that it has a size to the byte.
fn grown(drawing: &str, size: usize, mut chance: Chance) -> String {
    const OPEN: &str =
        "<path stroke=\"#fff\" stroke-opacity=\".13\" stroke-linecap=\"round\" fill=\"none\" d=\"";
    const CLOSE: &str = "\"/></svg>\n";
    const COMMENT: (&str, &str) = ("<!--", "-->");
    let mut svg = String::with_capacity(size);
    svg.push_str(drawing);
    svg.push_str(OPEN);
    // Room for the longest stroke, the end and an empty comment.
    let room = CLOSE.len() + COMMENT.0.len() + COMMENT.1.len() + 16;
    let enough = (size - room).min(drawing.len() + GRAIN);
    while svg.len() < enough {
        let (x, y) = (chance.below(WIDTH as u32), chance.below(HEIGHT as u32));
        let direction = chance.choose(&["h", "v"]);
        write!(svg, "M{x} {y}{direction}{}", chance.below(5)).expect("a string takes everything");
    }
    svg.push_str("\"/>");
    svg.push_str(COMMENT.0);
    let tail = "</svg>\n";
    let padding = size.saturating_sub(svg.len() + COMMENT.1.len() + tail.len());
    svg.extend(std::iter::repeat_n('.', padding));
    svg.push_str(COMMENT.1);
    svg.push_str(tail);
    svg
}

/// The lines of a title.
fn wrapped(title: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in title.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= LINE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::super::rows::Covers;
    use super::*;
    use crate::names::Scale;

    #[test]
    fn covers_have_their_sizes_to_the_byte() {
        let rows = Rows::new(3, Scale { items: 200, customers: 1 }, Covers { count: 200 });
        for item in 1..=200 {
            let mut chance = Chance::of(3, Purpose::Cover, item);
            let drawing = drawing(&rows, item, &mut chance);
            for (size, _) in COVERS {
                assert_eq!(grown(&drawing, size, chance.clone()).len(), size, "{item}");
            }
        }
    }

    #[test]
    fn sizes_are_distributed_as_specified() {
        let mut counts = std::collections::BTreeMap::new();
        for item in 0..20_000 {
            *counts.entry(cover_size(&mut Chance::of(1, Purpose::Cover, item))).or_insert(0_u32) += 1;
        }
        for (size, share) in COVERS {
            let found = f64::from(counts[&size]) / 200.0;
            assert!((found - f64::from(share)).abs() < 1.5, "{size} bytes: {found} %");
        }
    }
}
