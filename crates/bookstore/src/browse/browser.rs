//! One emulated browser: thinks, opens the next page, looks whether it is the right one, and goes on.
//!
//! A browser owns its visitor and its connections; nobody else touches them. What it hears is how things
//! stand ([`Moment`]): which mix holds, whether it is one too many, and when all is over.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::connection::{Connector, Head};
use super::images::Lines;
use super::pace::Pace;
use super::page::{Page, Scanner};
use super::record::{Outcome, Record};
use super::visitor::{Request, Visitor};
use crate::interaction::Interaction;
use crate::mixes::Mix;
use crate::names::Scale;

/// How long a browser that waits for a page when all is over goes on waiting: the site shall not be left in
/// the middle of it.
pub(super) const LEAVE_BOUND: Duration = Duration::from_secs(5);
/// In the course of what time browsers that are sent away close their connections.
const LEAVING: Duration = Duration::from_secs(1);

/// How things stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Where visitors go.
    pub(super) mix: Mix,
    /// Browsers of a closed loop with this number and above leave when they have read their page.
    pub(super) browsers: u64,
    /// Whether all is over.
    pub(super) is_over: bool,
}

/// How long a browser stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// Visit after visit, until it is sent away.
    Always,
    /// One visit.
    OneVisit,
}

/// What all browsers of a run have in common.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) connector: Arc<dyn Connector>,
    pub(super) scale: Scale,
    pub(super) keeps_mix: bool,
    pub(super) pace: Pace,
    pub(super) patience: Duration,
    pub(super) image_connections: Option<usize>,
    pub(super) seed: u64,
    pub(super) record: Arc<Record>,
}

/// A browser.
#[derive(Debug)]
pub(super) struct Browser {
    setting: Arc<Setting>,
    number: u64,
    stay: Stay,
    due: Instant,
    hear: watch::Receiver<Moment>,
    /// The mix of the phase in which it came, if it keeps that.
    mix: Option<Mix>,
    visits: u64,
}

/// One visit: the visitor, the connections, and the end.
struct Visit {
    visitor: Visitor,
    lines: Lines,
    ends: Instant,
}

/// What came of a request.
struct Answer {
    outcome: Outcome,
    retry_after: Option<Duration>,
    /// Whether a rejection is the shop's own page, and not of somebody before it.
    is_from_shop: bool,
}

impl Browser {
    /// The browser with a number, due at a moment. Its chance comes from the run's seed and its number alone.
    pub(super) fn new(
        setting: Arc<Setting>,
        number: u64,
        stay: Stay,
        due: Instant,
        hear: watch::Receiver<Moment>,
    ) -> Self {
        let mix = setting.keeps_mix.then(|| hear.borrow().mix);
        Self { setting, number, stay, due, hear, mix, visits: 0 }
    }

    /// Browses until it is done or sent away.
    pub(super) async fn run(mut self) {
        let mut way = StdRng::seed_from_u64(self.seed(0));
        let wait = match self.stay {
            Stay::Always => self.setting.pace.first(&mut way),
            Stay::OneVisit => Duration::ZERO,
        };
        if let Some(late) = self.wait(self.due + wait).await {
            self.setting.record.came(late);
            self.browse(way).await;
            self.setting.record.left();
        }
    }

    async fn browse(&mut self, mut way: StdRng) {
        let (mut visit, mut next) = (self.begin(), Interaction::Home);
        loop {
            let request = visit.visitor.request(next);
            let Some(answer) = self.open(&mut visit, &request).await else { return };
            if matches!(answer.outcome, Outcome::Wrong)
                || (next == Interaction::BuyConfirm && answer.outcome != Outcome::Rejected)
                    && answer.outcome != Outcome::Done
            {
                // It can't know whether the order was placed, or what it sees.
                visit.visitor.is_lost();
            }
            let mix = self.mix.unwrap_or_else(|| self.hear.borrow().mix);
            next = visit.visitor.at().map_or(Interaction::Home, |page| mix.next(page, &mut way));
            let think = self.setting.pace.think.draw(&mut way);
            let (since, wait) = (Instant::now(), think.max(answer.retry_after.unwrap_or_default()));
            let Some(late) = self.wait(since + wait).await else { return self.leave(visit, &mut way) };
            self.setting.record.thought(since.elapsed(), late);
            if next == Interaction::Home && Instant::now() >= visit.ends {
                if self.stay == Stay::OneVisit {
                    return;
                }
                visit = self.begin();
            }
        }
    }

    /// Somebody sits down before the browser.
    fn begin(&mut self) -> Visit {
        self.visits += 1;
        self.setting.record.session();
        let seed = self.seed(self.visits);
        let lasts = self.setting.pace.session.draw(&mut StdRng::seed_from_u64(seed ^ u64::MAX));
        Visit {
            visitor: Visitor::new(self.setting.scale, seed),
            lines: Lines::new(Arc::clone(&self.setting.connector)),
            ends: Instant::now() + lasts,
        }
    }

    /// Closes the connections, in the course of a second: a phase sends away thousands at once, and browsers
    /// that stay shall not wait for it.
    fn leave(&self, visit: Visit, way: &mut StdRng) {
        if !self.hear.borrow().is_over {
            let wait = LEAVING.mul_f64(way.random::<f64>());
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                drop(visit);
            });
        }
    }

    /// Waits until a moment and says how late it is; `None` if the browser has to leave.
    async fn wait(&mut self, until: Instant) -> Option<Duration> {
        loop {
            let moment = *self.hear.borrow_and_update();
            if moment.is_over || (self.stay == Stay::Always && self.number >= moment.browsers) {
                return None;
            }
            tokio::select! {
                () = sleep_until(until) => return Some(until.elapsed()),
                changed = self.hear.changed() => changed.ok()?,
            }
        }
    }

    /// Opens a page with its images, and counts it. `None` if all is over.
    async fn open(&mut self, visit: &mut Visit, request: &Request) -> Option<Answer> {
        let (setting, page) = (Arc::clone(&self.setting), request.interaction);
        let started = Instant::now();
        let mut over = self.hear.clone();
        let shown = {
            let asking = ask(&setting, visit, request, started);
            tokio::pin!(asking);
            tokio::select! {
                biased;
                answer = &mut asking => answer,
                () = is_over(&mut over) => {
                    setting.record.unfinished(page, started.elapsed());
                    let _ = timeout(LEAVE_BOUND, asking).await;
                    return None;
                }
            }
        };
        let (answer, images) = shown;
        setting.record.ended(page, answer.outcome, started.elapsed());
        if answer.is_from_shop {
            setting.record.busy();
        }
        if answer.outcome == Outcome::Done {
            let loaded = match setting.image_connections {
                Some(connections) => {
                    let until = Instant::now() + setting.patience;
                    tokio::select! {
                        loaded = visit.lines.fetch(images, connections, until) => loaded,
                        () = is_over(&mut over) => return None,
                    }
                }
                None => Default::default(),
            };
            setting.record.completed(started.elapsed(), loaded);
        }
        Some(answer)
    }

    /// A seed of this browser's own, one for each use.
    fn seed(&self, r#use: u64) -> u64 {
        let mut mixed = 0_u64;
        for part in [self.setting.seed, self.number, r#use] {
            // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
            mixed = (mixed ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
        }
        mixed
    }
}

/// Waits until all is over.
async fn is_over(hear: &mut watch::Receiver<Moment>) {
    // Without a sender all is over, too.
    drop(hear.wait_for(|moment| moment.is_over).await);
}

/// Asks for a page, at most as long as the visitor waits, and shows it to the visitor if it is right.
/// Answers with its images, too.
async fn ask(
    setting: &Setting,
    visit: &mut Visit,
    request: &Request,
    started: Instant,
) -> (Answer, Vec<String>) {
    let mut scanner = Scanner::default();
    let cookies = visit.visitor.cookies.header();
    let mut read = |piece: &[u8]| scanner.feed(piece);
    let exchange = visit.lines.first().exchange(request, cookies.as_deref(), &mut read);
    let result = timeout_at(started + setting.patience, exchange).await;
    let answer = |outcome| Answer { outcome, retry_after: None, is_from_shop: false };
    let complain = |what: &dyn std::fmt::Display| {
        setting.record.complain(format!("{}: {what}", request.interaction.code()));
    };
    let head = match result {
        Err(_) => return (answer(Outcome::TimedOut), Vec::new()),
        Ok(Err(reason)) => {
            complain(&reason);
            return (answer(Outcome::Failed), Vec::new());
        }
        Ok(Ok(head)) => head,
    };
    for cookie in &head.cookies {
        visit.visitor.cookies.take(cookie);
    }
    let mut page = scanner.finish();
    match judge(request.interaction, &head, &page) {
        Ok(()) => {
            let images = std::mem::take(&mut page.images);
            visit.visitor.shown(request, page);
            (answer(Outcome::Done), images)
        }
        Err((Outcome::Rejected, _)) => {
            let (retry_after, is_from_shop) = (head.retry_after, page.error.is_some());
            (Answer { outcome: Outcome::Rejected, retry_after, is_from_shop }, Vec::new())
        }
        Err((outcome, reason)) => {
            complain(&reason);
            (answer(outcome), Vec::new())
        }
    }
}

/// Whether an answer is the page that was asked for, and what it is if not.
fn judge(asked: Interaction, head: &Head, page: &Page) -> Result<(), (Outcome, String)> {
    match head.status {
        200 => {}
        429 | 503 => return Err((Outcome::Rejected, String::new())),
        status => {
            let outcome = if status >= 500 { Outcome::Failed } else { Outcome::Wrong };
            let error = page.error.as_deref().map(|error| format!(" ({error})")).unwrap_or_default();
            return Err((outcome, format!("status {status}{error}")));
        }
    }
    let wrong = |reason: String| Err((Outcome::Wrong, reason));
    if page.interaction != Some(asked) {
        return wrong(format!("the page says {}", page.interaction.map_or("nothing", Interaction::code)));
    }
    if !page.is_whole {
        return wrong("the page isn't whole".to_owned());
    }
    match asked {
        Interaction::BuyConfirm if page.order.is_none() => wrong("no order's number".to_owned()),
        Interaction::BuyConfirm if page.total.is_none() => wrong("no order's total".to_owned()),
        Interaction::ShoppingCart if page.lines.is_empty() => wrong("an empty cart".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(asked: Interaction, status: u16, page: &Page) -> Option<Outcome> {
        judge(asked, &Head { status, ..Head::default() }, page).err().map(|(outcome, _)| outcome)
    }

    #[test]
    fn an_answer_is_judged_by_status_page_and_what_it_must_hold() {
        let page = |interaction| Page { interaction: Some(interaction), is_whole: true, ..Page::default() };
        let home = page(Interaction::Home);
        assert_eq!(judged(Interaction::Home, 200, &home), None);
        assert_eq!(judged(Interaction::SearchRequest, 200, &home), Some(Outcome::Wrong));
        assert_eq!(judged(Interaction::Home, 200, &Page::default()), Some(Outcome::Wrong));
        assert_eq!(
            judged(Interaction::Home, 200, &Page { is_whole: false, ..home.clone() }),
            Some(Outcome::Wrong)
        );
        for (status, outcome) in [
            (503, Outcome::Rejected),
            (429, Outcome::Rejected),
            (500, Outcome::Failed),
            (504, Outcome::Failed),
            (404, Outcome::Wrong),
            (302, Outcome::Wrong),
        ] {
            assert_eq!(judged(Interaction::Home, status, &home), Some(outcome), "{status}");
        }
        let cart = page(Interaction::ShoppingCart);
        assert_eq!(judged(Interaction::ShoppingCart, 200, &cart), Some(Outcome::Wrong));
        assert_eq!(judged(Interaction::ShoppingCart, 200, &Page { lines: vec![(1, 1)], ..cart }), None);
        let order = Page { order: Some(1), ..page(Interaction::BuyConfirm) };
        assert_eq!(judged(Interaction::BuyConfirm, 200, &order), Some(Outcome::Wrong));
        assert_eq!(judged(Interaction::BuyConfirm, 200, &Page { total: Some(1.0), ..order }), None);
    }
}
