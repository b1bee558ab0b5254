//! The `gatekeeper` program: an overload-control proxy.
//!
//! It exits with 0 when all went well, 1 when something failed while it ran, 2 when it was called or
//! configured wrongly, 3 when `status` finds something to look at, and 130 when a signal ended what has no
//! end of its own.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

mod activation;
mod assemble;
mod cli;
mod commands;
mod descriptors;
mod files;
mod handover;
mod log;
mod manager;
mod memory;
mod process;
mod reload;
mod remote;
mod signals;
mod state;
mod tls;

use cli::{Cli, Command, UplinkCommand, UsersCommand};

/// Why a command ended badly, in words for the user.
enum Failure {
    /// It was called or configured wrongly.
    Usage(String),
    /// Something failed.
    Runtime(String),
    /// A signal ended it.
    Interrupted(String),
    /// What was asked about isn't well, as the user has read.
    Unwell,
}

impl Failure {
    /// Removes the message, because the user has read it already.
    fn told(self) -> Self {
        match self {
            Self::Usage(_) => Self::Usage(String::new()),
            Self::Runtime(_) => Self::Runtime(String::new()),
            Self::Interrupted(_) => Self::Interrupted(String::new()),
            Self::Unwell => Self::Unwell,
        }
    }

    /// What the user hears.
    fn message(&self) -> &str {
        match self {
            Self::Usage(message) | Self::Runtime(message) | Self::Interrupted(message) => message,
            Self::Unwell => "",
        }
    }

    /// Appends a line to the message.
    fn with(self, more: &str) -> Self {
        let both = format!("{}\n{more}", self.message());
        match self {
            Self::Usage(_) => Self::Usage(both),
            Self::Runtime(_) => Self::Runtime(both),
            Self::Interrupted(_) => Self::Interrupted(both),
            Self::Unwell => Self::Unwell,
        }
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => commands::run(&args),
        Command::Check { file, config } => commands::check(file.or(config)).and_then(|text| print(&text)),
        Command::Simulate(args) => commands::simulate(&args).and_then(|text| print(&text)),
        Command::Advise(args) => commands::advise(&args).and_then(|text| print(&text)),
        Command::Observe(args) => commands::observe(&args).and_then(|text| print(&text)),
        Command::Replay(args) => commands::replay(&args).and_then(|text| print(&text)),
        Command::Calibrate(args) => commands::calibrate(&args).and_then(|text| print(&text)),
        Command::Types(args) => commands::types(&args).and_then(|text| print(&text)),
        Command::Uplink { command: UplinkCommand::Setup(args) } => {
            commands::set_up(&args).and_then(|text| print(&text))
        }
        Command::Top(args) => commands::top(&args),
        Command::Why(args) => commands::why(&args).and_then(|text| print(&text)),
        Command::Status(args) => commands::status(&args).and_then(|text| print(&text)),
        Command::Reload(args) => commands::reload(&args).and_then(|text| print(&text)),
        Command::Drain(args) => commands::drain(&args).and_then(|text| print(&text)),
        Command::Upgrade(args) => commands::upgrade(&args).and_then(|text| print(&text)),
        Command::StartSuccessor { program, args } => {
            handover::start_successor(&program, &args).map_err(Failure::Runtime)
        }
        Command::Pass(args) => commands::pass(&args).and_then(|text| print(&text)),
        Command::Enforce(args) => commands::enforce(&args).and_then(|text| print(&text)),
        Command::Pause(args) => commands::pause(&args).and_then(|text| print(&text)),
        Command::Resume(args) => commands::resume(&args).and_then(|text| print(&text)),
        Command::Users { command: UsersCommand::Import(args) } => {
            commands::import_users(&args).and_then(|text| print(&text))
        }
        Command::Import { file } => commands::import(&file).and_then(|text| print(&text)),
    };
    let (message, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Runtime(message)) => (message, 1),
        Err(Failure::Usage(message)) => (message, 2),
        Err(Failure::Interrupted(message)) => (message, 130),
        Err(Failure::Unwell) => (String::new(), 3),
    };
    if !message.is_empty() {
        eprintln!("{message}");
    }
    ExitCode::from(code)
}

/// Writes to standard output. A reader that has gone (`gatekeeper types | head`) is no failure: he has seen
/// enough.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}
