//! The real shop over a real PostgreSQL server, visited by browsers, all as their commands run.

mod support;

use std::process::Output;

use bookstore::browse::Summary;
use bookstore::interaction::Interaction;
use bookstore::mixes::Mix;
use support::{Site, check, run, server};

/// How often browsers come until all pages were seen. The rarest is one of a thousand.
const ROUNDS: usize = 30;

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A shop of 1,000 books with covers.
fn shop(database: &str) -> Site {
    let images = tempfile::tempdir().expect("a directory");
    let path = images.path().to_str().expect("a path").to_owned();
    let size = ["--browsers", "1", "--items", "1000", "--covers", "40"];
    let common = ["populate", "--quiet", "--database", database, "--images", &path];
    let filled = run(&[&common[..], &size].concat());
    assert!(filled.status.success(), "{}", told(&filled));
    Site::start(database, &["--images", &path, "--connection-timeout", "120s"]).with(images)
}

/// Fifty browsers come; nothing may be wrong.
fn visit(site: &Site, mix: Mix, seed: usize) -> Summary {
    let json = site.images().join("summary.json");
    let (mix, seed, path) = (mix.to_string(), seed.to_string(), json.to_str().expect("a path"));
    let who = ["browse", "--site", &site.address, "--browsers", "50", "--mix", &mix, "--seed", &seed];
    let how =
        ["--think-scale", "0.01", "--warm-up", "0s", "--duration", "4s", "--timeout", "120s", "--images"];
    let visited = run(&[&who[..], &how, &["--json", path]].concat());
    // 2: the client was the bottleneck. A busy machine may well make it so.
    assert!(matches!(visited.status.code(), Some(0 | 2)), "{}", told(&visited));
    let summary = std::fs::read(&json).expect("a file");
    let summary: Summary = serde_json::from_slice(&summary).expect("a summary");
    let counts = summary.total.counts;
    let amiss = [counts.rejected, counts.timed_out, counts.failed, counts.wrong];
    assert_eq!((amiss, summary.total.images.failed), ([0; 4], 0), "{}", told(&visited));
    summary
}

#[test]
fn fifty_browsers_see_all_pages_of_the_real_shop_and_its_books_balance() {
    let server = server();
    let database = server.url();
    let site = shop(&database);
    let (mut seen, mut unfinished, mut images) = ([0; 14], 0, 0);
    for round in 0..ROUNDS {
        let summary = visit(&site, Mix::ALL[round % Mix::ALL.len()], round);
        for (seen, page) in seen.iter_mut().zip(&summary.total.interactions) {
            *seen += page.counts.done;
        }
        unfinished += summary.total.interactions[Interaction::BuyConfirm as usize].counts.unfinished;
        images += summary.total.images.done;
        if seen.iter().all(|&count| count > 0) {
            break;
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
    assert!(images > 0);
    let (is_well, report) = check(&database);
    assert!(is_well, "{report}");
    // Every order that a browser was told of was placed, and no other.
    let placed =
        report.lines().find_map(|line| line.strip_suffix(" orders were placed since the shop was filled"));
    let placed: u64 = placed.and_then(|count| count.parse().ok()).expect("how many orders were placed");
    let confirmed = seen[Interaction::BuyConfirm as usize];
    assert!((confirmed..=confirmed + unfinished).contains(&placed), "{confirmed} + {unfinished}, {placed}");
}
