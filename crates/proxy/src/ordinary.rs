//! Opening the files that a running gate reads, again at each reload.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens an ordinary file for reading, and nothing else: a named pipe would hold up a reload, and behind it
/// the end of the process, until somebody writes to it.
///
/// # Errors
/// It can't be opened, or is something else.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    // Asked of the open file, so that it is the one that is read.
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not an ordinary file")) }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_ordinary_files_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let [file, pipe] = ["file", "pipe"].map(|name| directory.path().join(name));
        std::fs::write(&file, "text").unwrap();
        assert_eq!(io::read_to_string(open(&file).unwrap()).unwrap(), "text");
        // Nobody ever writes to it.
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for other in [pipe.as_path(), directory.path(), Path::new("/dev/zero")] {
            let error = open(other).unwrap_err().to_string();
            assert_eq!(error, "it is not an ordinary file", "{}", other.display());
        }
    }
}
