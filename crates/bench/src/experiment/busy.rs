//! How many clients keep the server busy for a part of the time, over direct connections: machines differ,
//! and the same one from hour to hour, so that a number of clients says little of how near to saturation it
//! is.
//!
//! Below saturation the processor's part grows with the clients. So the first guess is as a straight line
//! through nothing has it, and the next ones lie between the nearest on both sides. What is compared then
//! has as many clients for every variant.
//!
//! Beyond saturation a busy processor says nothing of how many ask. There a part is a multiple of the
//! clients that would keep it just busy if it went on as below: N* = (Z + R)/D of the asymptotic bounds,
//! with (Z + R)/D = N/U as it was seen where the processor was [`BELOW`] busy.

use super::cell::Cell;
use super::plan::Load;
use super::results::{Book, Line};
use super::runner::Laboratory;
use crate::Error;
use crate::alternate::Display;

/// The variant through which the clients ask while their number is looked for.
const VARIANT: &str = "direct";
/// The search ends when the processor's part is this close to the part that is looked for.
const NEAR: f64 = 0.02;
/// How many numbers of clients are tried at most for one part.
pub(super) const TRIED_MAX: usize = 5;
/// How many are tried first. A busy server says nothing of how many fewer would do, so it is few.
const FIRST: usize = 24;
/// From this part on a server may as well be overloaded.
const SATURATED: f64 = 0.96;
/// What is beyond saturation is a multiple of what was seen here: near enough to it that clients meet as
/// they do at saturation, far enough that they hardly wait.
const BELOW: f64 = 0.7;
/// The largest multiple of saturation that may be asked for.
pub(super) const PART_MAX: f64 = 10.0;
/// A guess is at most so many times the largest that was tried.
const STEP: f64 = 4.0;

/// Finds how many clients keep the server busy for this part of the time, unless that is known, and writes
/// it down.
pub(super) async fn find(
    part: f64,
    laboratory: &mut impl Laboratory,
    book: &mut Book,
    display: &Display,
) -> Result<usize, Error> {
    if let Some(clients) = book.results().clients_for(part) {
        return Ok(clients);
    }
    let sought = sought(part);
    let load = Load::Busy(sought);
    // What was tried for other parts says where to begin.
    let mut known = book.results().busy_tried();
    let mut tried = Vec::new();
    while tried.len() < TRIED_MAX {
        let clients = guess(sought, &known).min(super::check::CLIENTS_MAX);
        if tried.iter().any(|&(before, _)| before == clients) {
            break;
        }
        display.now(format!("{}: {clients} clients?", load.phrase()));
        let cell = Cell { variant: VARIANT.to_owned(), load: Load::Clients(clients), repetition: 0 };
        let measured = laboratory.measure(&cell, None, None).await?;
        let busy = measured.server_cpu.ok_or_else(|| {
            let why = "the server has no processor of its own here, so nobody knows how busy it is; write `clients`";
            Error::Experiment(format!("`busy` = {part}: {why}"))
        })?;
        tried.push((clients, busy));
        known.push((clients, busy));
        if (busy - sought).abs() <= NEAR {
            break;
        }
    }
    let said: Vec<String> =
        tried.iter().map(|(clients, busy)| format!("{clients} clients {:.0} %", busy * 100.0)).collect();
    display.say(&format!("  {}: {}", load.phrase(), said.join(", ")));
    book.write(Line::KeptBusy { part: sought, tried })?;
    book.results().clients_for(part).ok_or_else(|| Error::Experiment("nothing was tried".to_owned()))
}

/// The part that is looked for where another is asked for.
pub(super) const fn sought(part: f64) -> f64 {
    if part < 1.0 { part } else { BELOW }
}

/// The number of clients for a part of the processor's time. It is computed from what was tried for the part
/// that [`sought`] names.
pub(super) fn clients(part: f64, tried: &[(usize, f64)]) -> Option<usize> {
    let (clients, busy) = nearest(sought(part), tried)?;
    if part < 1.0 {
        return Some(clients);
    }
    let saturated_by = clients as f64 / busy.max(f64::MIN_POSITIVE);
    Some(((part * saturated_by).round() as usize).min(super::check::CLIENTS_MAX))
}

/// What was tried whose part was nearest.
fn nearest(part: f64, tried: &[(usize, f64)]) -> Option<(usize, f64)> {
    let off = |busy: f64| (busy - part).abs();
    tried.iter().copied().min_by(|one, other| off(one.1).total_cmp(&off(other.1)))
}

/// What to try next for a part, by what is known.
fn guess(part: f64, known: &[(usize, f64)]) -> usize {
    let below = known.iter().filter(|&&(_, busy)| busy <= part).max_by_key(|&&(clients, _)| clients);
    let above = known
        .iter()
        .filter(|&&(clients, busy)| busy > part && below.is_none_or(|below| clients > below.0))
        .min_by_key(|&&(clients, _)| clients);
    let found = match (below, above) {
        (None, None) => return FIRST,
        // Between the two by their parts; a saturated one says only that it is too many.
        (Some(&(few, low)), Some(&(many, high))) if high < SATURATED => {
            few as f64 + (many - few) as f64 * (part - low) / (high - low)
        }
        (Some(&(few, low)), Some(&(many, _))) => {
            let straight = few as f64 * part / low.max(f64::MIN_POSITIVE);
            straight.min((few + many) as f64 / 2.0)
        }
        (Some(&(few, low)), None) => few as f64 * (part / low.max(f64::MIN_POSITIVE)).min(STEP),
        (None, Some(&(many, high))) if high < SATURATED => many as f64 * part / high,
        (None, Some(&(many, _))) => many as f64 / 2.0,
    };
    (found.round() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiment::cell::Measured;
    use crate::experiment::plan::{Form, Plan};
    use crate::experiment::results::{Otherwise, Results};
    use crate::experiment::tests::plan;

    /// A server that so many clients saturate; its part bends on the way there.
    struct Server {
        saturated_by: f64,
        asked: Vec<usize>,
        knows: bool,
    }

    impl Server {
        fn new(saturated_by: f64) -> Self {
            Self { saturated_by, asked: Vec::new(), knows: true }
        }
    }

    impl Laboratory for Server {
        async fn measure(
            &mut self,
            cell: &Cell,
            _best: Option<u32>,
            _rate: Option<f64>,
        ) -> Result<Measured, Error> {
            let Load::Clients(clients) = cell.load else { panic!("{:?}", cell.load) };
            assert_eq!(cell.variant, "direct");
            self.asked.push(clients);
            let offered = clients as f64 / self.saturated_by;
            let busy = (offered - 0.08 * offered * offered).min(1.0);
            Ok(Measured { server_cpu: self.knows.then_some(busy), ..Measured::default() })
        }

        fn adopt(&mut self, _plan: &Plan, _form: &Form) {}
    }

    fn book(path: &Path) -> Book {
        let plan = plan();
        Book::open(path, &plan.measured(&plan.full), "1", Otherwise::BeginAnew).unwrap().0
    }

    #[tokio::test]
    async fn as_many_clients_are_found_as_keep_the_server_busy_for_that_part() {
        for saturated_by in [30.0, 120.0, 900.0] {
            let directory = tempfile::tempdir().unwrap();
            let mut book = book(&directory.path().join("full.jsonl"));
            let mut server = Server::new(saturated_by);
            for part in [0.5, 0.7, 0.9] {
                let found = find(part, &mut server, &mut book, &Display::new()).await.unwrap();
                let offered = found as f64 / saturated_by;
                let busy = offered - 0.08 * offered * offered;
                assert!((busy - part).abs() <= 0.03, "{saturated_by}, {part}: {found}, {busy}");
            }
            assert!(server.asked.len() <= 10, "{:?}", server.asked);
        }
    }

    #[tokio::test]
    async fn what_is_known_is_not_looked_for_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full.jsonl");
        let mut first = Server::new(100.0);
        let display = Display::new();
        let found = find(0.7, &mut first, &mut book(&path), &display).await.unwrap();
        let mut second = Server::new(100.0);
        let again = find(0.7, &mut second, &mut book(&path), &display).await.unwrap();
        assert_eq!((again, second.asked.len()), (found, 0));
        assert_eq!(Results::read(&path).unwrap().clients_for(0.7), Some(found));
    }

    #[tokio::test]
    async fn a_server_whose_processor_nobody_knows_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let mut book = book(&directory.path().join("full.jsonl"));
        let mut server = Server { knows: false, ..Server::new(100.0) };
        let error = find(0.7, &mut server, &mut book, &Display::new()).await.unwrap_err();
        assert!(error.to_string().contains("write `clients`"), "{error}");
    }

    #[test]
    fn guesses_come_from_both_sides_and_a_saturated_server_only_says_too_many() {
        assert_eq!(guess(0.7, &[]), FIRST);
        assert_eq!(guess(0.7, &[(20, 0.14)]), 80, "at most four times as many");
        assert_eq!(guess(0.9, &[(60, 0.5), (100, 0.7)]), 129);
        assert_eq!(guess(0.6, &[(60, 0.5), (100, 0.7)]), 80);
        assert_eq!(guess(0.9, &[(60, 0.5), (90, 1.0)]), 75);
        assert_eq!(guess(0.5, &[(40, 1.0)]), 20);
        assert_eq!(guess(0.5, &[(40, 0.8)]), 25);
    }

    #[test]
    fn the_nearest_is_taken() {
        assert_eq!(clients(0.7, &[(24, 0.2), (84, 0.66), (90, 0.71)]), Some(90));
        assert_eq!(clients(0.7, &[]), None);
    }

    #[tokio::test]
    async fn what_is_beyond_saturation_is_a_multiple_of_what_was_seen_below_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut book = book(&directory.path().join("full.jsonl"));
        let mut server = Server::new(100.0);
        let display = Display::new();
        let below = find(0.7, &mut server, &mut book, &display).await.unwrap();
        let asked = server.asked.len();
        let beyond = find(3.0, &mut server, &mut book, &display).await.unwrap();
        let just = find(1.0, &mut server, &mut book, &display).await.unwrap();
        assert_eq!(server.asked.len(), asked, "a saturated server is asked nothing");
        assert!(server.asked.iter().all(|&clients| clients < 100), "{:?}", server.asked);
        let offered = below as f64 / 100.0;
        let saturated_by = below as f64 / (offered - 0.08 * offered * offered);
        assert!((beyond as f64 - 3.0 * saturated_by).abs() <= 1.0, "{below}: {beyond}");
        assert!((just as f64 - saturated_by).abs() <= 1.0, "{below}: {just}");
        assert_eq!(clients(3.0, &[(70, 0.7)]), Some(300));
    }
}
