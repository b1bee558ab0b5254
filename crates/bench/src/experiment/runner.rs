//! Measures the cells of an experiment. Each round has every variant once (A B C A B C), so that a drift of
//! the machine meets all alike. Cells that were measured before are left out. Each finished cell is written
//! down at once.

use std::time::{Duration, Instant};

use super::busy;
use super::cell::{Cell, Measured};
use super::offline::Offline;
use super::part::Part;
use super::plan::{Form, Load, Metric, Pages, Plan, Who, has_best};
use super::results::{Book, Line};
use super::yardstick::Yardstick;
use crate::Error;
use crate::alternate::{Display, turns};
use crate::table::{count, ratio, seconds};

/// The repetition of which arrivals are that settings are tried with: none that counts has them.
const TRIAL: u32 = u32::MAX;

/// A way to measure a cell.
pub trait Laboratory {
    /// Measures a cell. `best` is the pool of a variant that has the best, `rate` what `overload` multiplies.
    fn measure(
        &mut self,
        cell: &Cell,
        best: Option<u32>,
        rate: Option<f64>,
    ) -> impl Future<Output = Result<Measured, Error>>;

    /// Measures by this plan and this form from now on. They are those that it was set up with but for the
    /// keys of gates and for times.
    fn adopt(&mut self, plan: &Plan, form: &Form);

    /// Measures what is asked for alone, one after the other; none where that isn't told by type.
    fn alone(&mut self, _variant: &str) -> impl Future<Output = Result<Option<Measured>, Error>> {
        async { Ok(None) }
    }

    /// Looks, after the last cell, at what must hold and wasn't looked at after each.
    fn finish(&mut self) -> impl Future<Output = Result<(), Error>> {
        async { Ok(()) }
    }
}

/// All cells in their order: repetitions, within them loads, within them variants.
pub fn cells(form: &Form) -> Vec<Cell> {
    let loads: Vec<Load> = form.runs().collect();
    (0..form.repetitions)
        .flat_map(|repetition| {
            let loads = &loads;
            turns(loads.len(), form.variants.len()).map(move |turn| Cell {
                variant: form.variants[turn.variant].clone(),
                load: loads[turn.round],
                repetition,
            })
        })
        .filter(|cell| form.offers(&cell.variant, cell.load))
        .collect()
}

/// The cells of a part that are still to be measured.
pub fn missing(form: &Form, part: &Part, book: &Book) -> Vec<Cell> {
    let mut cells = cells(form);
    cells.retain(|cell| part.has(cell) && book.results().cell(cell).is_none());
    cells
}

/// Measures what is missing.
///
/// # Errors
/// With the first cell that can't be measured; those before it are written down.
pub async fn run(
    plan: &Plan,
    form: &Form,
    part: &Part,
    laboratory: &mut impl Laboratory,
    book: &mut Book,
    display: &Display,
) -> Result<(), Error> {
    let missing = missing(form, part, book);
    calibrate(plan, form, &missing, laboratory, book, display).await?;
    for &part in form.busy.iter().filter(|&&part| missing.iter().any(|cell| cell.load == Load::Busy(part))) {
        busy::find(part, laboratory, book, display).await?;
    }
    let mut clock = Clock::new(plan, form);
    let mut offline = Offline::new(plan, form);
    for (number, cell) in missing.iter().enumerate() {
        let best = best(plan, form, &cell.variant, laboratory, book, display).await?;
        offline.prepare(&cell.variant, laboratory, book, display).await?;
        let left = clock.left(&missing[number..]);
        let place =
            format!("{}/{}  {:<20} {:>5}", number + 1, missing.len(), cell.variant, cell.load.label());
        display.now(format!("{place}   about {} left", humantime::format_duration(whole(left))));
        let rate = book.results().calibrated();
        let start = Instant::now();
        let asked = match cell.load {
            Load::Busy(part) => {
                let clients = book.results().clients_for(part).unwrap_or_default();
                Cell { load: Load::Clients(clients), ..cell.clone() }
            }
            _ => cell.clone(),
        };
        let mut measured = laboratory.measure(&asked, best, rate).await?;
        measured.took_seconds = start.elapsed().as_secs_f64();
        clock.learn(cell, start.elapsed());
        display.say(&format!("  {place}   {}", in_a_line(&measured)));
        book.write(Line::Cell { cell: cell.clone(), measured: Box::new(measured) })?;
    }
    laboratory.finish().await
}

/// Finds what `overload` multiplies, or what a site's figures are measured by, if that is needed and isn't
/// known.
async fn calibrate(
    plan: &Plan,
    form: &Form,
    missing: &[Cell],
    laboratory: &mut impl Laboratory,
    book: &mut Book,
    display: &Display,
) -> Result<(), Error> {
    let workload = &plan.workload;
    let of_a_site = (workload.site.is_some() || workload.origin.is_some()) && !missing.is_empty();
    let needed = of_a_site || missing.iter().any(|cell| matches!(cell.load, Load::Overload(_)));
    let Some(calibrate) = form.calibrate.as_ref().filter(|_| needed && book.results().calibrated().is_none())
    else {
        return Ok(());
    };
    let best = best(plan, form, &calibrate.variant, laboratory, book, display).await?;
    if of_a_site {
        display.now(format!("{}: each page alone", plan.name));
        if let Some(alone) = laboratory.alone(&calibrate.variant).await? {
            book.write(Line::Alone { types: alone.types })?;
        }
    }
    let mut tried = Vec::new();
    for &clients in &calibrate.clients {
        display.now(format!("{}: the best of {}, {clients} clients", plan.name, calibrate.variant));
        let cell = Cell { variant: calibrate.variant.clone(), load: Load::Clients(clients), repetition: 0 };
        let measured = laboratory.measure(&cell, best, None).await?;
        let throughput = measured.clients.throughput;
        if of_a_site {
            book.write(Line::Busy { clients, throughput, types: measured.types })?;
        }
        tried.push((clients, throughput));
    }
    let said: Vec<String> =
        tried.iter().map(|(clients, rate)| format!("{clients} clients {}/s", count(*rate))).collect();
    display.say(&format!("  calibrated through {}: {}", calibrate.variant, said.join(", ")));
    book.write(Line::Calibrated { tried })
}

/// The pool of a variant that has the best, or the number of a peer's setting; looked for once, if there are
/// several to choose from.
async fn best(
    plan: &Plan,
    form: &Form,
    variant: &str,
    laboratory: &mut impl Laboratory,
    book: &mut Book,
    display: &Display,
) -> Result<Option<u32>, Error> {
    if let (Some(settings), Some(pages)) = (plan.peer.get(variant), &plan.workload.origin) {
        let settings = (variant, settings.len() as u32);
        return setting((plan, pages), settings, laboratory, book, display).await;
    }
    if !has_best(variant) {
        return Ok(None);
    }
    if let [only] = form.pools[..] {
        return Ok(Some(only));
    }
    if book.results().pool(variant).is_none() {
        search(form, variant, laboratory, book, display).await?;
    }
    Ok(book.results().pool(variant).map(|(_, best)| best))
}

/// Finds the best pool of a variant, under the most clients.
async fn search(
    form: &Form,
    variant: &str,
    laboratory: &mut impl Laboratory,
    book: &mut Book,
    display: &Display,
) -> Result<(), Error> {
    let most = book.results().most_clients(form);
    let cell = Cell { variant: variant.to_owned(), load: Load::Clients(most), repetition: 0 };
    let mut tried = Vec::new();
    for &pool in &form.pools {
        display.now(format!("{variant}: a pool of {pool}"));
        tried.push((pool, laboratory.measure(&cell, Some(pool), None).await?.clients.throughput));
    }
    let said: Vec<String> = tried.iter().map(|(pool, rate)| format!("{pool}: {}/s", count(*rate))).collect();
    display.say(&format!("  pools of {variant}: {}", said.join(", ")));
    book.write(Line::Pool { variant: variant.to_owned(), tried })
}

/// The best of a peer's settings, each tried for once at the same load; looked for once.
async fn setting(
    (plan, pages): (&Plan, &Pages),
    (variant, settings): (&str, u32),
    laboratory: &mut impl Laboratory,
    book: &mut Book,
    display: &Display,
) -> Result<Option<u32>, Error> {
    if book.results().setting(variant).is_none() {
        let cell =
            Cell { variant: variant.to_owned(), load: Load::Overload(pages.tried_at), repetition: TRIAL };
        let mut tried = Vec::new();
        for number in 0..settings {
            let called = plan.setting(variant, number).unwrap_or_default();
            display.now(format!("{variant}: setting {} of {settings}, {called}", number + 1));
            let rate = book.results().calibrated();
            let measured = laboratory.measure(&cell, Some(number), rate).await?;
            let yardstick = Yardstick::of(book.results());
            let goodput = yardstick.figure(&measured, Metric::Goodput, Who::Clients).unwrap_or(0.0);
            let short = yardstick.figure(&measured, Metric::ResponseLetIn, Who::Short);
            let short = short.unwrap_or(plan.workload.timeout.0.as_secs_f64());
            display.say(&format!(
                "  {variant} with {called}: goodput {}, short pages {}",
                ratio(goodput),
                seconds(short)
            ));
            tried.push((goodput, short));
        }
        book.write(Line::Tried { variant: variant.to_owned(), tried })?;
    }
    Ok(book.results().setting(variant))
}

/// What cells take: as planned, and as the last one of the same kind took.
struct Clock<'a> {
    plan: &'a Plan,
    form: &'a Form,
    known: Vec<(Cell, Duration)>,
}

impl<'a> Clock<'a> {
    const fn new(plan: &'a Plan, form: &'a Form) -> Self {
        Self { plan, form, known: Vec::new() }
    }

    fn learn(&mut self, cell: &Cell, took: Duration) {
        self.known.retain(|(known, _)| !alike(known, cell));
        self.known.push((cell.clone(), took));
    }

    fn left(&self, cells: &[Cell]) -> Duration {
        let takes = |cell: &Cell| {
            let known = self.known.iter().find(|(known, _)| alike(known, cell)).map(|(_, took)| *took);
            known.unwrap_or_else(|| self.plan.cell_takes(self.form, cell.load))
        };
        cells.iter().map(takes).sum()
    }
}

fn alike(one: &Cell, other: &Cell) -> bool {
    one.variant == other.variant && one.load == other.load
}

const fn whole(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

fn in_a_line(measured: &Measured) -> String {
    let mut text = format!(
        "{:>7}/s   over all {:>8}   residual {:>4}",
        count(measured.clients.throughput),
        seconds(measured.clients.all_seconds),
        measured.clients.residual.map_or("–".to_owned(), |part| format!("{:.0} %", part * 100.0)),
    );
    if let Some(bystanders) = measured.bystanders {
        let per_second = count(bystanders.throughput);
        text += &format!("   bystanders {per_second:>7}/s {:>8}", seconds(bystanders.all_seconds));
    }
    if let Some(errand) = measured.errand {
        let beside = errand.beside_seconds.map_or("not done".to_owned(), seconds);
        text += &format!("   errand {beside}, alone {}", seconds(errand.alone_seconds));
    }
    if !measured.alive {
        text += &format!("   {} processes killed", measured.kills);
    }
    if let Some(share) = measured.others_cpu.filter(|_| measured.is_disturbed()) {
        text += &format!("   (others used {:.0} % of the server's processor)", share * 100.0);
    }
    if measured.is_client_bound() {
        text += "   (the client may be the bottleneck)";
    }
    if let Some(queued) = measured.client_queue_seconds.filter(|_| measured.is_queued_in_client()) {
        text += &format!("   (5 % waited for {} and more in the client)", seconds(queued));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::results::{Otherwise, Results};
    use crate::experiment::tests::plan;

    /// Remembers what it was asked, and fails at the cell of this number.
    #[derive(Default)]
    struct Scripted {
        asked: Vec<(Cell, Option<u32>, Option<f64>)>,
        fails_at: Option<usize>,
    }

    impl Laboratory for Scripted {
        async fn measure(
            &mut self,
            cell: &Cell,
            best: Option<u32>,
            rate: Option<f64>,
        ) -> Result<Measured, Error> {
            if self.fails_at == Some(self.asked.len()) {
                return Err(Error::Interrupted);
            }
            self.asked.push((cell.clone(), best, rate));
            let mut measured = Measured { alive: true, ..Measured::default() };
            // A pool of 4 is the best.
            if let Load::Clients(clients) = cell.load {
                measured.server_cpu = Some((clients as f64 / 50.0).min(1.0));
            }
            measured.clients.throughput = 100.0 - best.map_or(0.0, |pool| (f64::from(pool) - 4.0).abs());
            Ok(measured)
        }

        fn adopt(&mut self, _plan: &Plan, _form: &Form) {}
    }

    fn open(path: &std::path::Path) -> Book {
        let plan = plan();
        Book::open(path, &plan.measured(&plan.full), "1", Otherwise::BeginAnew).unwrap().0
    }

    fn order(cells: &[Cell]) -> Vec<(u32, Load, &str)> {
        cells.iter().map(|cell| (cell.repetition, cell.load, cell.variant.as_str())).collect()
    }

    #[test]
    fn variants_alternate_within_every_load_of_every_repetition() {
        let mut form = plan().short;
        form.variants = ["a", "b", "c"].map(str::to_owned).to_vec();
        (form.clients, form.repetitions) = (vec![1, 2], 2);
        let found = cells(&form);
        let variants: Vec<&str> = found.iter().map(|cell| cell.variant.as_str()).collect();
        assert_eq!(variants, ["a", "b", "c"].repeat(4));
        assert_eq!(order(&found)[..4].last(), Some(&(0, Load::Clients(2), "a")));
    }

    #[tokio::test]
    async fn after_an_interruption_only_the_rest_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full.jsonl");
        let plan = plan();
        let display = Display::new();
        let mut first = Scripted { fails_at: Some(5), ..Scripted::default() };
        let result = run(&plan, &plan.full, &Part::default(), &mut first, &mut open(&path), &display).await;
        assert!(matches!(result, Err(Error::Interrupted)));
        let written = Results::read(&path).unwrap().cells().count();
        assert!(written > 0);
        let mut second = Scripted::default();
        run(&plan, &plan.full, &Part::default(), &mut second, &mut open(&path), &display).await.unwrap();
        let all = cells(&plan.full);
        let results = Results::read(&path).unwrap();
        assert_eq!(results.cells().map(|(cell, _)| cell.clone()).collect::<Vec<_>>(), all);
        let again: Vec<Cell> =
            second.asked.iter().filter(|asked| asked.1.is_none()).map(|asked| asked.0.clone()).collect();
        assert!(order(&again).ends_with(&order(&all[written..])[all.len() - written - 1..]));
        assert!(!again.contains(&all[0]));
        // Once more: nothing is left.
        let mut third = Scripted::default();
        run(&plan, &plan.full, &Part::default(), &mut third, &mut open(&path), &display).await.unwrap();
        assert!(third.asked.is_empty());
    }

    #[tokio::test]
    async fn the_best_pool_is_found_once_and_used() {
        let directory = tempfile::tempdir().unwrap();
        let plan = plan();
        let mut book = open(&directory.path().join("full.jsonl"));
        let mut laboratory = Scripted::default();
        run(&plan, &plan.full, &Part::default(), &mut laboratory, &mut book, &Display::new()).await.unwrap();
        let pools: Vec<Option<u32>> = laboratory
            .asked
            .iter()
            .filter(|asked| asked.0.variant == "pgbouncer-best-pool")
            .map(|asked| asked.1)
            .collect();
        assert_eq!(pools[..4], [Some(2), Some(4), Some(8), Some(4)]);
        assert!(pools[3..].iter().all(|&pool| pool == Some(4)));
    }

    #[tokio::test]
    async fn a_single_pool_is_taken_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let mut plan = plan();
        plan.full.pools = vec![2];
        let mut book = open(&directory.path().join("full.jsonl"));
        let mut laboratory = Scripted::default();
        run(&plan, &plan.full, &Part::default(), &mut laboratory, &mut book, &Display::new()).await.unwrap();
        assert_eq!(laboratory.asked.len(), cells(&plan.full).len());
        let of_best = |asked: &&(Cell, Option<u32>, _)| asked.0.variant == "pgbouncer-best-pool";
        assert!(laboratory.asked.iter().filter(of_best).all(|asked| asked.1 == Some(2)));
    }

    #[tokio::test]
    async fn who_keeps_a_server_busy_is_found_before_the_cells_and_is_the_same_for_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full.jsonl");
        let mut plan = plan();
        (plan.full.clients, plan.full.busy) = (Vec::new(), vec![0.5]);
        let mut laboratory = Scripted::default();
        let display = Display::new();
        run(&plan, &plan.full, &Part::of("gate"), &mut laboratory, &mut open(&path), &display).await.unwrap();
        let asked: Vec<(&str, Load)> =
            laboratory.asked.iter().map(|asked| (asked.0.variant.as_str(), asked.0.load)).collect();
        // A fiftieth of the processor for each client.
        assert_eq!(asked[..2], [("direct", Load::Clients(24)), ("direct", Load::Clients(25))]);
        assert_eq!(asked[2..], [("gate", Load::Clients(25)); 3]);
        let results = Results::read(&path).unwrap();
        assert_eq!(results.repetitions("gate", Load::Busy(0.5)).len(), 3);
    }

    #[tokio::test]
    async fn overload_is_a_multiple_of_what_was_calibrated() {
        let directory = tempfile::tempdir().unwrap();
        let mut plan = plan();
        plan.full.overload = vec![1.5];
        let calibrate = super::super::plan::Calibrate { variant: "gate".to_owned(), clients: vec![3, 5] };
        plan.full.calibrate = Some(calibrate);
        let mut book = open(&directory.path().join("full.jsonl"));
        let mut laboratory = Scripted::default();
        run(&plan, &plan.full, &Part::of("gate"), &mut laboratory, &mut book, &Display::new()).await.unwrap();
        let loads: Vec<Load> = laboratory.asked.iter().take(2).map(|asked| asked.0.load).collect();
        assert_eq!(loads, [Load::Clients(3), Load::Clients(5)]);
        let overloaded = |asked: &&(Cell, _, Option<f64>)| asked.0.load == Load::Overload(1.5);
        assert!(laboratory.asked.iter().filter(overloaded).all(|asked| asked.2 == Some(100.0)));
        assert_eq!(book.results().calibrated(), Some(100.0));
    }
}
