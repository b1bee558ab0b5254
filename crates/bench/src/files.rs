//! What an experiment leaves behind: its figures as JSON, for code that draws or compares them, and lines
//! that are written one by one while it runs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::Error;

/// Writes the figures to `NAME.json` in a directory, which is made if it isn't there.
///
/// # Errors
/// If the directory can't be made or written to.
pub(crate) fn write_figures(figures: &impl Serialize, output: &Path, name: &str) -> Result<(), Error> {
    let failed = |source| Error::io(format!("writing to {}", output.display()))(source);
    fs::create_dir_all(output).map_err(failed)?;
    let text = serde_json::to_string_pretty(figures).map_err(io::Error::from).map_err(failed)?;
    fs::write(output.join(format!("{name}.json")), text).map_err(failed)
}

/// The lines of a file that are whole: a last one that was cut off, wherever, doesn't count.
///
/// # Errors
/// The system's, or that a whole line isn't text.
pub(crate) fn read_lines(path: &Path) -> io::Result<String> {
    let mut bytes = fs::read(path)?;
    bytes.truncate(whole(&bytes));
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Opens a file of lines to go on with, made if it isn't there. A last line that was cut off is taken away,
/// so that nothing is appended to it; the others stay on the disk as they are, whatever happens meanwhile.
///
/// # Errors
/// The system's.
pub(crate) fn append_lines(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let bytes = fs::read(path)?;
    let whole = whole(&bytes);
    if whole < bytes.len() {
        file.set_len(whole as u64)?;
    }
    Ok(file)
}

/// How many bytes the whole lines are.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_line_that_was_cut_off_within_a_letter_is_left_out_and_the_next_takes_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        assert_eq!(read_lines(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        append_lines(&path).unwrap().write_all("one\n1.5×".as_bytes()).unwrap();
        let length = fs::metadata(&path).unwrap().len();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
        assert_eq!(read_lines(&path).unwrap(), "one\n");
        append_lines(&path).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        fs::write(&path, [0xff, b'\n']).unwrap();
        assert_eq!(read_lines(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
