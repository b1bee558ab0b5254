//! The real shop over a real PostgreSQL server, visited by browsers, all three as their commands run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use bench::postgres::{PrivateServer, PrivateServerOptions};
use bookstore::browse::Summary;
use bookstore::mixes::Mix;

/// How often browsers come until all pages were seen. The rarest is one of a thousand.
const ROUNDS: u32 = 30;

fn bookstore(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bookstore"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    bookstore(arguments).output().unwrap()
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A served shop, which ends with the test.
struct Site {
    process: Child,
    address: String,
}

impl Drop for Site {
    fn drop(&mut self) {
        // If it has ended by itself there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(database: &str, images: &Path) -> Site {
    let mut process = bookstore(&[
        "serve",
        "--database",
        database,
        "--listen",
        "127.0.0.1:0",
        "--connection-timeout",
        "120s",
        "--images",
    ])
    .arg(images)
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening at ").unwrap().to_owned();
    Site { process, address }
}

#[test]
fn fifty_browsers_see_all_pages_of_the_real_shop_and_its_books_balance() {
    let server = PrivateServer::start(&PrivateServerOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let images = directory.path().join("images");
    let database = server.url();
    let filled = run(&[
        "populate",
        "--quiet",
        "--database",
        &database,
        "--browsers",
        "1",
        "--items",
        "1000",
        "--covers",
        "40",
        "--images",
        images.to_str().unwrap(),
    ]);
    assert!(filled.status.success(), "{}", told(&filled));
    let site = serve(&database, &images);
    let json = directory.path().join("summary.json");
    let (mut seen, mut orders, mut pictures) = ([0_u64; 14], 0, 0);
    for round in 0..ROUNDS {
        let mix = Mix::ALL[round as usize % Mix::ALL.len()].to_string();
        let visited = run(&[
            "browse",
            "--site",
            &site.address,
            "--browsers",
            "50",
            "--mix",
            &mix,
            "--think-scale",
            "0.01",
            "--warm-up",
            "0s",
            "--duration",
            "4s",
            "--timeout",
            "120s",
            "--images",
            "--seed",
            &round.to_string(),
            "--json",
            json.to_str().unwrap(),
        ]);
        // 2: the client was the bottleneck. A busy machine may well make it so.
        assert!(matches!(visited.status.code(), Some(0 | 2)), "{}", told(&visited));
        let summary: Summary = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let counts = summary.total.counts;
        assert_eq!((counts.failed, counts.wrong, counts.rejected), (0, 0, 0), "{}", told(&visited));
        assert!(summary.complaints.is_empty());
        assert_eq!(summary.total.images.failed, 0, "{}", told(&visited));
        for (seen, page) in seen.iter_mut().zip(&summary.total.interactions) {
            *seen += page.counts.done;
        }
        orders += summary.total.interactions[9].counts.done;
        pictures += summary.total.images.done;
        if seen.iter().all(|&count| count > 0) {
            break;
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
    assert!(orders > 0 && pictures > 0);
    let checked = run(&["check", "--database", &database]);
    assert!(checked.status.success(), "{}", told(&checked));
}
