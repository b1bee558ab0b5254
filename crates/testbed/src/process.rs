//! Child processes: started on a chosen processor, ended by their own id, and their logs' tails.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Error;

/// How often a bounded wait looks again.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How much of a log an error message quotes, in bytes.
const LOG_TAIL_BYTES: u64 = 4096;

/// How often a port that was given away before is drawn again.
const PORT_TRIES: usize = 1_000;

/// A TCP port of the loopback interface that was free a moment ago, and that nobody in this process was
/// given before: it may be free still, because it isn't used yet.
///
/// Somebody else may take it before it is used: code that starts a server on it tries again with another one.
///
/// # Errors
/// If the operating system has no free port.
pub fn free_port() -> Result<u16, Error> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let action = "looking for a free port";
    let mut given = GIVEN.lock();
    for _ in 0..PORT_TRIES {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io(action))?;
        let port = listener.local_addr().map_err(Error::io(action))?.port();
        if given.insert(port) {
            return Ok(port);
        }
    }
    Err(Error::Unusable("all free ports were given away before".to_owned()))
}

/// The processors that this process may use, in ascending order.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Restricts the calling thread, and every thread and process that it starts later, to some processors.
///
/// # Errors
/// If one of them doesn't exist or none is ours to use.
pub fn pin_to_cpus(cpus: &[usize]) -> Result<(), Error> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(Error::Unusable(format!("there is no processor {cpu}")));
        }
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(|errno| Error::Io {
        action: format!("pinning to processors {cpus:?}"),
        source: errno.into(),
    })
}

/// Sets the first processor that we may use aside for a server and restricts this thread, and whatever it
/// starts later, to the rest; returns the server's. To be called before any other thread is started. On a
/// machine with one processor everybody shares it, and there is none to return.
///
/// # Errors
/// If the operating system refuses.
pub fn separate_processors() -> Result<Option<usize>, Error> {
    let cpus = allowed_cpus();
    let (Some(&first), rest) = (cpus.first(), cpus.get(1..).unwrap_or_default()) else { return Ok(None) };
    if rest.is_empty() {
        return Ok(None);
    }
    pin_to_cpus(rest)?;
    Ok(Some(first))
}

/// Allows this process, and what it starts, as many open files as the administrator permits: each connection
/// is one, and many shells allow only 1,024.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, opening the connections reports what is missing.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Starts `command`, pinned to `cpu` if there is one.
///
/// A child inherits the affinity of the thread that starts it, so the child never runs anywhere else, and
/// whatever it forks inherits the same.
pub fn spawn_pinned(command: &mut Command, cpu: Option<usize>) -> Result<Child, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let start = |command: &mut Command| command.spawn().map_err(Error::io(format!("starting {name}")));
    let Some(cpu) = cpu else { return start(command) };
    let before = sched_getaffinity(None)
        .map_err(|errno| Error::Io { action: "reading the affinity".to_owned(), source: errno.into() })?;
    pin_to_cpus(&[cpu])?;
    let child = start(command);
    sched_setaffinity(None, &before)
        .map_err(|errno| Error::Io { action: "restoring the affinity".to_owned(), source: errno.into() })?;
    child
}

/// A binary of this workspace: where the environment says, else beside this program, else beside the
/// directory of a test.
pub fn find_binary(name: &str, variable: &str) -> Result<PathBuf, Error> {
    if let Some(named) = std::env::var_os(variable) {
        return Ok(PathBuf::from(named));
    }
    let own = std::env::current_exe().map_err(Error::io("finding this program"))?;
    own.ancestors()
        .skip(1)
        .take(3)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Error::Missing(format!(
                "the {name} binary is not beside {}; build it with `cargo build --release -p {name}`, or name it in {variable}",
                own.display()
            ))
        })
}

/// A program that is installed: on `PATH`, or where only the administrator looks for it. `hint` is what to
/// install.
///
/// # Errors
/// With the hint, if it isn't there.
pub fn find_installed(name: &str, hint: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| Error::Missing(format!("{name} was not found; install {hint}")))
}

/// What a program says of itself, on both of its outputs; nothing if it can't be started.
pub fn said(binary: &Path, argument: &str) -> String {
    let output = Command::new(binary).arg(argument).output();
    let all = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    String::from_utf8_lossy(&all).into_owned()
}

/// Sends `signal` to a child that we started and have not yet waited for, so the id can't be anybody else's.
pub fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself already; the wait that follows finds out.
        let _ = kill_process(pid, signal);
    }
}

/// Asks a child to end with each signal in turn, waiting up to its bound for the exit, and kills it at last.
pub fn end(child: &mut Child, steps: &[(Signal, Duration)]) -> Option<ExitStatus> {
    for &(step, bound) in steps {
        signal(child, step);
        if let Some(status) = wait_for_exit(child, bound) {
            return Some(status);
        }
    }
    let _ = child.kill();
    child.wait().ok()
}

/// Whether the kernel says that a process isn't there any more, when its files are read or it is put into a
/// group. (Where its directory under `/proc` is gone as well, no file is found.)
pub fn is_gone(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Waits up to `bound` for a child's exit.
pub fn wait_for_exit(child: &mut Child, bound: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + bound;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Waits up to `bound` until a child that was just started is ready; `is_ready` says what is missing.
///
/// # Errors
/// What became of it instead, for [`Error::NotReady`].
pub fn wait_until_ready(
    child: &mut Child,
    bound: Duration,
    mut is_ready: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let deadline = Instant::now() + bound;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("stopped at once ({status})"));
        }
        let Err(missing) = is_ready() else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(format!("didn't accept connections within {bound:?} ({missing})"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Whether a server on this machine accepts connections at `port`.
pub fn accepts(port: u16) -> Result<(), String> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop).map_err(|error| error.to_string())
}

/// The last lines of a log file, for an error message.
pub fn log_tail(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("(no log: {error})"))
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// If there is no such process, or the operating system doesn't tell.
pub fn resident_memory(pid: u32) -> Result<u64, Error> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(Error::io(format!("reading {path}")))?;
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| Error::Unusable(format!("{path} tells no VmRSS")))
}

/// `root` and its direct children, as `/proc` lists them (only `root` where there is no `/proc`).
pub fn family(root: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{root}/task/{root}/children")).unwrap_or_default();
    std::iter::once(root).chain(children.split_whitespace().filter_map(|pid| pid.parse().ok())).collect()
}

/// `root` and all that descend from it, as `/proc` lists them.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&pid) = found.get(at) {
        // The first is the process itself.
        found.extend(family(pid).into_iter().skip(1));
        at += 1;
    }
    found
}
