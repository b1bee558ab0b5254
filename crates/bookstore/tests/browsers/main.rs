//! Browsers before a shop that writes everything down, in virtual time.

mod shop;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bookstore::browse::{self, Load, Pace, Phase, Plan, Span, Summary};
use bookstore::interaction::Interaction;
use bookstore::mixes::Mix;
use bookstore::names::{self, Scale};
use shop::{Act, Seen, Shop, ShopConnector};
use tokio::time::Instant;

const SCALE: Scale = Scale { items: 1_000, customers: 2_880 };
const PATIENCE: Duration = Duration::from_secs(30);

fn phase(seconds: u64, load: Load) -> Phase {
    let duration = Duration::from_secs(seconds);
    Phase { name: format!("{load}"), duration, load, mix: Mix::Shopping, is_counted: true }
}

fn plan(phases: Vec<Phase>) -> Plan {
    Plan {
        phases,
        keeps_mix: false,
        pace: Pace::default(),
        patience: PATIENCE,
        image_connections: None,
        most_present: 1_000,
        seed: 5,
    }
}

/// One phase of a closed loop.
fn closed(browsers: u32, seconds: u64) -> Plan {
    plan(vec![phase(seconds, Load::Browsers(browsers))])
}

/// The plan with visits that don't end.
fn endless(mut plan: Plan) -> Plan {
    let day = Duration::from_secs(24 * 60 * 60);
    plan.pace.session = Span { mean: day * 1_000, cap: day };
    plan
}

async fn visit(plan: &Plan, shop: &Arc<Shop>) -> Summary {
    browse::visit(plan, Arc::new(ShopConnector(Arc::clone(shop))), SCALE, 1).await
}

fn by_connection(pages: Vec<Seen>) -> BTreeMap<usize, Vec<Seen>> {
    let mut all: BTreeMap<usize, Vec<Seen>> = BTreeMap::new();
    for seen in pages {
        all.entry(seen.connection).or_default().push(seen);
    }
    all
}

fn fields(seen: &Seen) -> Vec<&str> {
    seen.form.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn visits_begin_at_the_first_page_and_keep_their_cookies() {
    let shop = Shop::new(|_| Act::Serve);
    let summary = visit(&closed(30, 7_200), &shop).await;
    let visits = by_connection(shop.pages());
    // A visit has a connection of its own: 15 minutes on average, so about 8 for each browser.
    assert_eq!(visits.len() as u64, summary.total.present.sessions);
    assert!((150..350).contains(&visits.len()), "{}", visits.len());
    let mut known = 0;
    for pages in visits.values() {
        assert_eq!(pages[0].page, Some(Interaction::Home));
        assert_eq!(pages[0].cookies, "");
        let customer = pages[0].target.strip_prefix("/?customer=");
        known += usize::from(customer.is_some());
        let mut has_cart = false;
        for seen in &pages[1..] {
            assert_eq!(seen.cookies.contains("cart="), has_cart, "{seen:?}");
            if let Some(customer) = customer {
                assert!(seen.cookies.contains(&format!("customer={customer}")), "{seen:?}");
            }
            has_cart |= seen.page == Some(Interaction::ShoppingCart);
        }
    }
    assert!((65..92).contains(&(known * 100 / visits.len())), "{known} of {}", visits.len());
}

#[tokio::test(start_paused = true)]
async fn pages_are_asked_for_as_it_was_agreed() {
    let shop = Shop::new(|_| Act::Serve);
    let mut plan = closed(60, 3_600);
    plan.phases[0].mix = Mix::Ordering;
    let summary = visit(&plan, &shop).await;
    let mut seen_pages = BTreeSet::new();
    for pages in by_connection(shop.pages()).values() {
        let mut before: Option<&Seen> = None;
        for seen in pages {
            let page = seen.page.unwrap();
            seen_pages.insert(page);
            let registers =
                ["returning", "first_name", "last_name", "street1", "street2", "city", "state", "zip"];
            match (page, fields(seen).as_slice()) {
                (Interaction::BuyRequest, ["returning", "uname", "password"]) => {
                    assert_eq!(seen.form[0].1, "yes");
                    let id: u32 = value(&seen.cookies, "customer").unwrap().parse().unwrap();
                    assert_eq!(seen.form[1].1, names::user_name(id));
                    assert_eq!(seen.form[2].1, names::password(id));
                }
                (Interaction::BuyRequest, form) => {
                    assert_eq!(form[..8], registers);
                    assert_eq!(form[8..], ["country", "phone", "email", "birth_date", "data"]);
                }
                (Interaction::BuyConfirm, form) => {
                    let expected = ["card_type", "card_number", "card_name", "card_expiry", "shipping"];
                    assert_eq!(form[..5], expected);
                    assert_eq!(before.unwrap().page, Some(Interaction::BuyRequest));
                }
                (Interaction::OrderDisplay, form) => assert_eq!(form, ["uname", "password"]),
                (Interaction::AdminConfirm, form) => {
                    assert_eq!(form, ["cost", "image", "thumbnail"]);
                    assert_eq!(seen.form[1].1, "i.jpg");
                    assert_eq!(format!("{}/change", before.unwrap().target), seen.target);
                }
                (Interaction::ShoppingCart, form) => match before.unwrap() {
                    Seen { page: Some(Interaction::ProductDetail), target, .. } => {
                        assert_eq!(form, ["add"]);
                        assert_eq!(format!("/books/{}", seen.form[0].1), *target);
                    }
                    Seen { page: Some(Interaction::ShoppingCart), .. } => {
                        assert!(form.iter().all(|name| ["quantity.11", "quantity.12"].contains(name)));
                    }
                    _ => assert_eq!(form, [""; 0]),
                },
                (Interaction::NewProducts | Interaction::BestSellers, []) => {
                    let subject = seen.target.split_once("?subject=").unwrap().1;
                    assert!(names::SUBJECTS.contains(&subject), "{subject}");
                }
                (Interaction::ProductDetail, []) => {
                    let book = seen.target.strip_prefix("/books/").unwrap();
                    assert!(["11", "12", "13", "14", "15"].contains(&book), "{book}");
                }
                (_, form) => assert_eq!(form, [""; 0], "{page:?}"),
            }
            before = Some(seen);
        }
    }
    assert_eq!(seen_pages.len(), 14, "{seen_pages:?}");
    assert_eq!(summary.total.counts.wrong + summary.total.counts.failed, 0);
}

fn value<'a>(cookies: &'a str, name: &str) -> Option<&'a str> {
    cookies.split("; ").find_map(|cookie| cookie.strip_prefix(name)?.strip_prefix('='))
}

#[tokio::test(start_paused = true)]
async fn who_is_rejected_stays_away_and_asks_from_the_page_that_it_is_on() {
    let shop = Shop::new(|seen| match seen.page {
        Some(Interaction::Home) => Act::Serve,
        _ => Act::Reject(503, 20),
    });
    let summary = visit(&endless(closed(20, 3_600)), &shop).await;
    let pages = shop.pages();
    let rejected = pages.iter().filter(|seen| seen.page != Some(Interaction::Home)).count();
    let counts = summary.total.counts;
    assert_eq!(counts.rejected, rejected as u64);
    assert_eq!(counts.done, (pages.len() - rejected) as u64);
    assert_eq!((counts.timed_out, counts.failed, counts.wrong), (0, 0, 0));
    let from_home = [
        Interaction::BestSellers,
        Interaction::NewProducts,
        Interaction::OrderInquiry,
        Interaction::SearchRequest,
        Interaction::ShoppingCart,
    ];
    for visit in by_connection(pages).values() {
        for two in visit.windows(2) {
            if two[0].page != Some(Interaction::Home) {
                assert!(two[1].at - two[0].at >= Duration::from_secs(20));
            }
            assert!(from_home.contains(&two[1].page.unwrap()), "{two:?}");
        }
    }
    // A browser that thinks longer than 20 s goes on thinking: 20 s plus the rest of the distribution,
    // e^(-20/7) of the times.
    assert!(summary.total.little.think > 20.0 && summary.total.little.think < 21.0);
    assert!(summary.total.little.residual.abs() < 0.02, "{}", summary.total.little.residual);
}

#[tokio::test(start_paused = true)]
async fn a_429_is_a_rejection_too_and_without_a_hint_only_the_think_time_passes() {
    let shop = Shop::new(|_| Act::Reject(429, 0));
    let summary = visit(&closed(20, 3_600), &shop).await;
    assert_eq!(summary.total.counts.rejected, shop.pages().len() as u64);
    assert!((6.5..7.5).contains(&summary.total.little.think), "{}", summary.total.little.think);
    assert!(shop.pages().iter().all(|seen| seen.page == Some(Interaction::Home)));
}

#[tokio::test(start_paused = true)]
async fn who_waited_long_enough_closes_the_connection_and_is_charged_all_of_it() {
    let shop = Shop::new(|seen| match seen.page {
        Some(Interaction::SearchResults) => Act::Hang,
        _ => Act::Serve,
    });
    let summary = visit(&closed(30, 3_600), &shop).await;
    let hung: Vec<Seen> =
        shop.pages().into_iter().filter(|seen| seen.page == Some(Interaction::SearchResults)).collect();
    let total = &summary.total;
    let counts = total.counts;
    assert_eq!(counts.timed_out + counts.unfinished, hung.len() as u64);
    assert!(counts.timed_out > 100);
    let expected = counts.timed_out as f64 * PATIENCE.as_secs_f64();
    assert!((total.sums.timed_out - expected).abs() < 1.0, "{} of {expected}", total.sums.timed_out);
    // All others took no time at all.
    assert!((total.all_requests.sum - expected - total.sums.unfinished).abs() < 2.0);
    assert!(total.all_requests.p99 > 29.0 && total.response.p99 < 0.1);
    let closed: BTreeMap<_, _> = shop.closed().into_iter().collect();
    for seen in &hung[..counts.timed_out as usize / 2] {
        let waited = closed[&seen.connection] - seen.at;
        assert!(waited >= PATIENCE && waited < PATIENCE + Duration::from_millis(10), "{waited:?}");
    }
    assert!(total.little.residual.abs() < 0.05, "{}", total.little.residual);
}

#[tokio::test(start_paused = true)]
async fn half_a_page_is_none() {
    let shop = Shop::new(|seen| match seen.page {
        Some(Interaction::SearchRequest) => Act::Stall,
        Some(Interaction::ShoppingCart) => Act::BreakOff,
        _ => Act::Serve,
    });
    let summary = visit(&closed(30, 3_600), &shop).await;
    let count = |page: Interaction| shop.pages().iter().filter(|seen| seen.page == Some(page)).count() as u64;
    let counts = summary.total.counts;
    assert_eq!(counts.timed_out + counts.unfinished, count(Interaction::SearchRequest));
    assert_eq!(counts.failed, count(Interaction::ShoppingCart));
    assert!(counts.timed_out > 100 && counts.failed > 100);
    assert!((summary.total.sums.timed_out / counts.timed_out as f64 - PATIENCE.as_secs_f64()).abs() < 0.01);
    assert!(
        summary.complaints.iter().all(|complaint| complaint.what.starts_with("SHOP: the body broke off"))
    );
    // No browser that stopped waiting keeps the connection.
    let closed: BTreeMap<_, _> = shop.closed().into_iter().collect();
    for seen in shop.pages().iter().filter(|seen| seen.page == Some(Interaction::SearchRequest)).take(100) {
        assert!(closed[&seen.connection] - seen.at < PATIENCE + Duration::from_millis(10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_the_one_asked_for_is_wrong_and_the_visitor_begins_again() {
    let shop = Shop::new(|seen| match seen.page {
        Some(Interaction::NewProducts) => Act::Mistake,
        Some(Interaction::BestSellers) => Act::Fail(404),
        Some(Interaction::ProductDetail) => Act::Fail(500),
        _ => Act::Serve,
    });
    let summary = visit(&endless(closed(30, 3_600)), &shop).await;
    let count = |page: Interaction| shop.pages().iter().filter(|seen| seen.page == Some(page)).count() as u64;
    let counts = summary.total.counts;
    assert_eq!(counts.wrong, count(Interaction::NewProducts) + count(Interaction::BestSellers));
    assert_eq!(counts.failed, count(Interaction::ProductDetail));
    let complaints: BTreeMap<&str, u64> =
        summary.complaints.iter().map(|complaint| (complaint.what.as_str(), complaint.count)).collect();
    assert_eq!(complaints["NEWP: the page says nothing"], count(Interaction::NewProducts));
    assert_eq!(complaints["BESS: status 404 (no luck)"], count(Interaction::BestSellers));
    assert_eq!(complaints["PROD: status 500 (no luck)"], count(Interaction::ProductDetail));
    for visit in by_connection(shop.pages()).values() {
        for two in visit.windows(2) {
            if matches!(two[0].page, Some(Interaction::NewProducts | Interaction::BestSellers)) {
                assert_eq!(two[1].page, Some(Interaction::Home));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_know_whether_an_order_was_placed_begins_again() {
    let shop = Shop::new(|seen| match seen.page {
        Some(Interaction::BuyConfirm) => Act::Break,
        _ => Act::Serve,
    });
    let mut plan = endless(closed(1, 3_600));
    plan.phases[0].mix = Mix::Ordering;
    let summary = visit(&plan, &shop).await;
    let pages = shop.pages();
    let orders = pages.iter().filter(|seen| seen.page == Some(Interaction::BuyConfirm)).count();
    assert!(orders > 10);
    // Never sent twice: the shop may have done it.
    assert_eq!(summary.total.counts.failed, orders as u64);
    for two in pages.windows(2) {
        if two[0].page == Some(Interaction::BuyConfirm) {
            assert_eq!(two[1].page, Some(Interaction::Home));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_the_shop_ended_is_no_failure() {
    let shop = Shop::new(|_| Act::ServeLast);
    let summary = visit(&closed(10, 1_000), &shop).await;
    let counts = summary.total.counts;
    assert_eq!((counts.failed, counts.wrong, counts.unfinished), (0, 0, 0));
    assert_eq!(counts.done, shop.pages().len() as u64);
    assert_eq!(shop.opened(), shop.pages().len());
}

#[tokio::test(start_paused = true)]
async fn images_are_fetched_once_in_a_visit_over_a_few_connections() {
    let shop = Shop::new(|_| Act::Wait(Duration::from_millis(40)));
    let mut plan = endless(closed(1, 1_000));
    plan.image_connections = Some(3);
    let summary = visit(&plan, &shop).await;
    let images: Vec<Seen> = shop.seen().into_iter().filter(|seen| seen.page.is_none()).collect();
    let targets: BTreeSet<&str> = images.iter().map(|seen| seen.target.as_str()).collect();
    assert_eq!((images.len(), targets.len()), (5, 5));
    assert_eq!(shop.opened(), 3);
    let total = &summary.total;
    assert_eq!((total.images.done, total.images.bytes, total.images.failed), (5, 5_000, 0));
    // Five images over three connections take two rounds, after the first page alone.
    let apart = total.complete.sum - total.response.sum;
    assert!((0.079..0.09).contains(&apart), "{apart}");
    assert_eq!(total.complete.count, total.response.count);
}

#[tokio::test(start_paused = true)]
async fn images_that_do_not_come_keep_nobody_longer_than_its_patience() {
    let shop = Shop::new(|seen| if seen.page.is_none() { Act::Hang } else { Act::Serve });
    let mut plan = endless(closed(1, 1_000));
    plan.image_connections = Some(2);
    let summary = visit(&plan, &shop).await;
    let total = &summary.total;
    // They are asked for again at each page, since none came.
    assert_eq!(total.images.timed_out, total.complete.count * 5);
    assert!((total.complete.mean - PATIENCE.as_secs_f64()).abs() < 0.1, "{}", total.complete.mean);
    assert_eq!(total.counts.done, total.response.count);
    assert!(total.response.p99 < 0.1);
    assert!(total.little.residual.abs() < 0.1, "{}", total.little.residual);
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_turns_visits_away_only_at_its_bound_and_says_so() {
    let shop = Shop::new(|_| Act::Serve);
    let mut plan = plan(vec![phase(600, Load::Sessions(2.0))]);
    plan.pace.session = Span { mean: Duration::from_secs(60), cap: Duration::from_secs(120) };
    let free = visit(&plan, &shop).await;
    assert!((1_050..1_350).contains(&free.total.present.sessions), "{}", free.total.present.sessions);
    assert_eq!((free.total.present.turned_away, free.client_was_the_bottleneck), (0, false));
    assert_eq!(by_connection(shop.pages()).len() as u64, free.total.present.sessions);
    plan.most_present = 10;
    let bound = visit(&plan, &Shop::new(|_| Act::Serve)).await;
    assert_eq!(bound.total.present.most, 10);
    assert!(bound.client_was_the_bottleneck);
    // Arrivals are the same, whatever became of earlier ones.
    let present = bound.total.present;
    assert_eq!(present.sessions + present.turned_away, free.total.present.sessions);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_is_what_the_shop_saw() {
    let start = Instant::now();
    let shop = Shop::new(|seen| match (seen.connection + seen.target.len()) % 7 {
        0 => Act::Reject(503, 1),
        1 => Act::Wait(Duration::from_secs(40)),
        2 => Act::Wait(Duration::from_secs(2)),
        _ => Act::Serve,
    });
    let mut first = phase(100, Load::Browsers(40));
    first.is_counted = false;
    let second = Phase { mix: Mix::Ordering, ..phase(300, Load::Browsers(80)) };
    let third = phase(200, Load::Browsers(10));
    let summary = visit(&plan(vec![first, second, third]), &shop).await;
    let sum = |pick: &dyn Fn(&browse::Counts) -> u64| -> u64 {
        summary.phases.iter().map(|phase| pick(&phase.figures.counts)).sum()
    };
    let all = |counts: &browse::Counts| {
        counts.done + counts.rejected + counts.timed_out + counts.failed + counts.wrong + counts.unfinished
    };
    let pages = shop.pages();
    assert_eq!(sum(&all), pages.len() as u64);
    let rejected = pages.iter().filter(|seen| (seen.connection + seen.target.len()) % 7 == 0).count();
    assert_eq!(sum(&|counts| counts.rejected), rejected as u64);
    for page in Interaction::ALL {
        let told: u64 =
            summary.phases.iter().map(|phase| all(&phase.figures.interactions[page as usize].counts)).sum();
        let seen = pages.iter().filter(|seen| seen.page == Some(page)).count();
        assert_eq!(told, seen as u64, "{}", page.code());
    }
    let by_second: u64 = summary.seconds.iter().map(|second| all(&second.counts)).sum();
    assert_eq!(by_second + sum(&|counts| counts.unfinished), pages.len() as u64);
    // The warm-up is told, but not in the total; and browsers leave as the schedule says.
    let [warm_up, second, third] = &summary.phases[..] else { panic!("three phases") };
    assert_eq!(all(&summary.total.counts), all(&second.figures.counts) + all(&third.figures.counts));
    assert!(!warm_up.is_counted && (summary.total.duration - 500.0).abs() < 0.1);
    assert_eq!((warm_up.figures.present.most, second.figures.present.most), (40, 80));
    assert!(third.figures.present.mean < 25.0, "{}", third.figures.present.mean);
    // Browsers that think when they are sent away close their connections one after the other.
    let sent_away = start + Duration::from_secs(400);
    let closings: BTreeSet<Instant> = shop
        .closed()
        .into_iter()
        .map(|(_, at)| at)
        .filter(|&at| at >= sent_away && at < sent_away + Duration::from_millis(1_100))
        .collect();
    assert!(closings.len() > 30, "{}", closings.len());
    // What is written can be read again.
    let text = serde_json::to_string(&summary).unwrap();
    let read: Summary = serde_json::from_str(&text).unwrap();
    assert_eq!(read.total.counts, summary.total.counts);
    assert_eq!(read.seconds.len(), summary.seconds.len());
    assert_eq!(read.phases[1].figures.interactions.len(), 14);
}

#[tokio::test(start_paused = true)]
async fn what_the_shop_itself_turns_away_is_told_apart() {
    // The shop's own page says what is wrong; a proxy before the shop doesn't know its pages.
    let shop = Shop::new(|seen| match seen.connection % 3 {
        0 => Act::Reject(503, 1),
        1 => Act::Fail(503),
        _ => Act::Serve,
    });
    let mut first = phase(100, Load::Browsers(30));
    first.is_counted = false;
    let summary = visit(&plan(vec![first, phase(300, Load::Browsers(30))]), &shop).await;
    let own = shop.pages().iter().filter(|seen| seen.connection % 3 == 1).count() as u64;
    let told: u64 = summary.phases.iter().map(|phase| phase.figures.busy).sum();
    let unfinished: u64 = summary.phases.iter().map(|phase| phase.figures.counts.unfinished).sum();
    assert!(own > 100 && (told..=told + unfinished).contains(&own), "{told} of {own}");
    assert_eq!(summary.seconds.iter().map(|second| second.busy).sum::<u64>(), told);
    assert!(summary.total.busy < told && summary.total.busy < summary.total.counts.rejected);
}

#[tokio::test(start_paused = true)]
async fn who_keeps_its_mix_goes_on_as_it_came() {
    let share = |keeps_mix: bool| async move {
        let shop = Shop::new(|_| Act::Serve);
        let browsing = Phase { mix: Mix::Browsing, ..phase(300, Load::Browsers(60)) };
        let joined = Phase { mix: Mix::Ordering, ..phase(1_200, Load::Browsers(120)) };
        let summary = visit(&Plan { keeps_mix, ..plan(vec![browsing, joined]) }, &shop).await;
        let pages = &summary.phases[1].figures.interactions;
        pages[Interaction::BestSellers as usize].share
    };
    // The specification: 11 % of the browsing mix, 0.46 % of the ordering mix.
    let (all, half) = (share(false).await, share(true).await);
    assert!((0.2..0.8).contains(&all), "{all}");
    assert!((5.0..6.5).contains(&half), "{half}");
}

/// The ways of browsers through the shop, by the customer or connection with which they began.
async fn ways(plan: &Plan, answer: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Vec<Vec<Interaction>> {
    let shop = Shop::new(answer);
    visit(plan, &shop).await;
    let mut ways: Vec<Vec<Interaction>> = by_connection(shop.pages())
        .into_values()
        .map(|pages| pages.into_iter().filter_map(|seen| seen.page).collect())
        .collect();
    ways.sort();
    ways
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_makes_the_same_ways_however_long_answers_take() {
    let plan = endless(closed(20, 700));
    let quick = ways(&plan, |_| Act::Serve).await;
    assert_eq!(quick, ways(&plan, |_| Act::Serve).await);
    let slow = ways(&plan, |seen| Act::Wait(Duration::from_millis(seen.target.len() as u64 * 100))).await;
    assert_eq!(quick.len(), 20);
    for way in &slow {
        assert!(way.len() > 20);
        assert!(quick.iter().any(|other| other.starts_with(&way[..20])), "{way:?}");
    }
    let mut other = plan;
    other.seed += 1;
    assert_ne!(quick, ways(&other, |_| Act::Serve).await);
}
