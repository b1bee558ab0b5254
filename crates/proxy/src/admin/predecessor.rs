//! The process that has handed its sockets over to this one, for as long as it serves clients.

use super::Admin;

/// A process, by its number and the time of its start: numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Predecessor {
    process: u32,
    began: u64,
}

impl Predecessor {
    fn of(process: u32) -> Option<Self> {
        Some(Self { process, began: began(process)? })
    }

    fn is_there(self) -> bool {
        began(self.process) == Some(self.began)
    }
}

/// When a process that there is began, in ticks since the machine did (`proc_pid_stat(5)`, field 22).
fn began(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field, a name in parentheses, may hold anything.
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

impl Admin {
    /// This process has taken over from another one, which serves its clients until they leave.
    pub fn succeeds(&self, process: u32) {
        if let Some(predecessor) = Predecessor::of(process) {
            // Nobody is succeeded to twice.
            let _ = self.predecessor.set(predecessor);
        }
    }

    /// The process before, while there is any.
    pub(super) fn predecessor(&self) -> Option<u32> {
        self.predecessor.get().filter(|predecessor| predecessor.is_there()).map(|known| known.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_predecessor_is_told_until_it_has_ended() {
        let admin = Admin::new("1");
        assert_eq!(admin.predecessor(), None);
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        admin.succeeds(process.id());
        assert_eq!(admin.predecessor(), Some(process.id()));
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(admin.predecessor(), None);
    }

    #[test]
    fn another_process_of_its_number_is_not_taken_for_it() {
        let own = Predecessor::of(std::process::id()).unwrap();
        assert!(own.is_there() && !Predecessor { began: own.began + 1, ..own }.is_there());
    }
}
