//! The page: a document, styles, scripts and pictures of the sizes that pages have.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

use crate::Error;

/// Files of the page: the document, styles, scripts and pictures.
pub const FILES: usize = 1 + STYLES + SCRIPTS + PICTURES;
const STYLES: usize = 3;
const SCRIPTS: usize = 6;
const PICTURES: usize = 50;
/// Bytes of a style and of a script.
const STYLE: usize = 20_000;
const SCRIPT: usize = 40_000;
/// The page's document.
pub(super) const DOCUMENT: &str = "index.html";
/// What others download, and its bytes: more than the link carries while a page is waited for.
pub(super) const DOWNLOAD: &str = "download";
const DOWNLOAD_BYTES: u64 = 128 << 20;
/// Pixels in a row of a picture, and bytes of its head.
const WIDTH: usize = 64;
const HEAD: usize = 54;

/// Notes when things are painted, and in `painted` the frame behind the load event with all pictures decoded.
const WATCH: &str = "<script>
const seen = {};
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) seen[entry.entryType] = entry.startTime;
}).observe({type: 'largest-contentful-paint', buffered: true});
addEventListener('load', async () => {
  await Promise.all([...document.images].map(image => image.decode()));
  requestAnimationFrame(() => setTimeout(() => { seen.painted = performance.now(); }));
});
</script>";

/// Rows of a picture: most are small, some are large.
const fn rows(picture: usize) -> usize {
    match picture {
        0 | 1 => 780,
        picture if picture % 5 == 0 => 200,
        _ => 40,
    }
}

/// Writes the page and the download into a directory.
pub(super) fn write(directory: &Path) -> Result<(), Error> {
    let write = |name: String, bytes: &[u8]| {
        fs::write(directory.join(&name), bytes).map_err(Error::io(format!("writing {name}")))
    };
    for style in 0..STYLES {
        let text = format!("p.style{style} {{ color: #{style}{style}{style}; }}\n");
        write(format!("{style}.css"), padded(&text, STYLE).as_bytes())?;
    }
    for script in 0..SCRIPTS {
        let text = format!("document.title += ' {script}';\n");
        write(format!("{script}.js"), padded(&text, SCRIPT).as_bytes())?;
    }
    for picture in 0..PICTURES {
        write(format!("{picture}.bmp"), &bitmap(rows(picture)))?;
    }
    write(DOCUMENT.to_owned(), document().as_bytes())?;
    let download = File::create(directory.join(DOWNLOAD)).and_then(|file| file.set_len(DOWNLOAD_BYTES));
    download.map_err(Error::io("writing a download"))
}

/// A text with a comment behind it that makes it so long.
fn padded(text: &str, length: usize) -> String {
    let missing = length.saturating_sub(text.len() + 4);
    format!("{text}/*{}*/", "x".repeat(missing))
}

fn document() -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=en><title>Page</title>\n<link rel=icon href='data:,'>\n{WATCH}\n"
    );
    for style in 0..STYLES {
        let _ = writeln!(text, "<link rel=stylesheet href={style}.css>");
    }
    for script in 0..SCRIPTS {
        let _ = writeln!(text, "<script defer src={script}.js></script>");
    }
    for picture in 0..PICTURES {
        let style = picture % STYLES;
        let _ = writeln!(text, "<p class=style{style}>{}</p>", "What a page says. ".repeat(30));
        let _ = writeln!(text, "<img src={picture}.bmp width={WIDTH} height={} alt=''>", rows(picture));
    }
    text
}

/// A picture without compression, of 24 bits a pixel.
fn bitmap(rows: usize) -> Vec<u8> {
    let size = HEAD + rows * WIDTH * 3;
    let mut bytes = b"BM".to_vec();
    let long = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
    for value in [size, 0, HEAD, HEAD - 14, WIDTH, rows, 1 | 24 << 16, 0, size - HEAD, 2_835, 2_835, 0, 0] {
        bytes.extend(long(value));
    }
    bytes.extend((0..size - HEAD).map(|at| (at * 31 % 251) as u8));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_all_its_files() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        let text = document();
        let (mut files, mut bytes) = (1, text.len());
        for entry in fs::read_dir(directory.path()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if ![DOCUMENT, DOWNLOAD].contains(&name.as_str()) {
                assert!(text.contains(&format!("={name}")), "{name}");
                files += 1;
                bytes += usize::try_from(entry.metadata().unwrap().len()).unwrap();
            }
        }
        assert_eq!(files, FILES);
        assert!((1_200_000..1_500_000).contains(&bytes), "{bytes}");
    }
}
