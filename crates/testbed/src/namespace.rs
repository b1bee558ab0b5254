//! Network namespaces of our own.
//!
//! A namespace lives as long as a process inside it, which ends when its standard input does. So the kernel
//! removes it, with its devices, when its [`Keeper`] is dropped, and also when this process is killed.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Error;

/// A network namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
}

impl Namespace {
    /// Moves this thread, and whatever it starts later, into the namespace.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn enter(&self) -> Result<(), Error> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| Error::io("entering a network namespace")(errno.into()))
    }

    /// Does something on a thread inside the namespace. Processes that it starts are inside as well.
    ///
    /// # Errors
    /// As the work, or if the system refuses.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                work()
            });
            thread.join().map_err(|_| Error::Unusable("a thread inside a namespace ended".to_owned()))?
        })
    }

    /// Runs a program inside, with these arguments between blanks, and returns what it printed.
    ///
    /// # Errors
    /// If it can't be started, or fails.
    pub fn run(&self, program: &str, arguments: &str) -> Result<String, Error> {
        self.inside(|| {
            let output = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).output();
            let output = output.map_err(|error| missing(program, error))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(Error::Program { program: format!("{program} {arguments}"), output: said });
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })
    }
}

/// A process that keeps a namespace alive.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
    namespace: Namespace,
}

impl Keeper {
    /// Makes a namespace.
    ///
    /// # Errors
    /// If the system refuses, or `unshare` is missing.
    pub fn start() -> Result<Self, Error> {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| missing("unshare", error))?;
        // What comes back was passed on by a process that is inside.
        let mut echo = String::new();
        if let (Some(input), Some(output)) = (&mut child.stdin, &mut child.stdout) {
            let _ = input.write_all(b"inside\n");
            let _ = BufReader::new(output).read_line(&mut echo);
        }
        if echo != "inside\n" {
            let output = child.wait_with_output().map_err(Error::io("waiting for unshare"))?;
            let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::Program { program: "unshare --net".to_owned(), output });
        }
        let path = format!("/proc/{}/ns/net", child.id());
        let file = File::open(&path).map_err(Error::io(format!("opening {path}")));
        match file {
            Ok(file) => Ok(Self { child, namespace: Namespace { file: Arc::new(file) } }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// The namespace.
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The process inside, by its number.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// A file of `/proc/net` as the namespace has it.
    pub fn read(&self, name: &str) -> Result<String, Error> {
        let path = format!("/proc/{}/net/{name}", self.child.id());
        fs::read_to_string(&path).map_err(Error::io(format!("reading {path}")))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn missing(program: &str, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        let package = if program == "unshare" { "util-linux" } else { "iproute2" };
        return Error::Missing(format!("{program} is not installed; install Debian's package {package}"));
    }
    Error::io(format!("starting {program}"))(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_package_of_a_missing_program() {
        let text = missing("tc", std::io::ErrorKind::NotFound.into()).to_string();
        assert!(text.contains("Debian's package iproute2"), "{text}");
    }
}
