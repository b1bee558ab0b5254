//! A pseudo-terminal with a program in it, and what its screen shows.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// How long the screen may take. Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(60);
/// The pause between two looks at the screen.
const LOOK: Duration = Duration::from_millis(20);

/// A terminal in which a program runs; dropping it ends the program.
pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    writer: Box<dyn Write + Send>,
    bytes: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    /// All that the program has written.
    pub(crate) raw: Vec<u8>,
    _master: Box<dyn MasterPty + Send>,
}

impl Terminal {
    /// Starts the gatekeeper with these arguments in a terminal of this size.
    pub(crate) fn start(args: &[&str], (columns, rows): (u16, u16)) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_gatekeeper"));
        command.args(args);
        command.env("TERM", "xterm-256color");
        command.env_remove("GATEKEEPER_ADMIN");
        let child = pair.slave.spawn_command(command).expect("the gatekeeper starts");
        let mut reader = pair.master.try_clone_reader().expect("the terminal can be read");
        let writer = pair.master.take_writer().expect("the terminal can be written");
        let (sender, bytes) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let parser = vt100::Parser::new(rows, columns, 0);
        Self { child, writer, bytes, parser, raw: Vec::new(), _master: pair.master }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).expect("the program reads keys");
        self.writer.flush().expect("the program reads keys");
    }

    /// The screen's lines.
    pub(crate) fn screen(&mut self) -> String {
        while let Ok(bytes) = self.bytes.try_recv() {
            self.parser.process(&bytes);
            self.raw.extend_from_slice(&bytes);
        }
        self.parser.screen().contents()
    }

    /// Waits until the screen is so, and returns it.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + BOUND;
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "the screen never shows {what}:\n{screen}");
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the program's end, and returns its exit code.
    pub(crate) fn end(&mut self) -> u32 {
        let deadline = Instant::now() + BOUND;
        loop {
            self.screen();
            if let Some(status) = self.child.try_wait().expect("the program can be asked") {
                self.screen();
                return status.exit_code();
            }
            assert!(Instant::now() < deadline, "it doesn't end:\n{}", self.parser.screen().contents());
            std::thread::sleep(LOOK);
        }
    }

    /// The title that the program gave the window.
    pub(crate) fn title(&self) -> &str {
        self.parser.screen().title()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
