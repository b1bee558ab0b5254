//! How soon the background yields: crowds come to a PostgreSQL on which statements of 50 ms run in the
//! background.
//!
//! Each background statement says when the server got it, so that what counts is when the gate let it in.
//! The same crowds come before to a gate without a background.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testbed::postgres::{PrivateServer, PrivateServerOptions};
use tokio::task::JoinSet;

use super::Options;
use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::load::{Client, Connecting, Crowd, Group, Mix, Record, RequestType, Target, Unit};
use crate::stats::{mean, percentile};

/// Sessions of the background, and of the crowd.
const BACKGROUND: usize = 8;
const CROWD: usize = 16;
/// How long the statements of each compute, in seconds.
const LONG: f64 = 0.050;
const SHORT: f64 = 0.002;
/// How many crowds come, for how long each stays, and the pause before each.
const CROWDS: usize = 20;
const STAYS: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(700);
/// How long a client waits: nobody should have to.
const PATIENCE: Duration = Duration::from_secs(60);
/// Within this it has yielded, in seconds.
const GOAL: f64 = 0.2;
/// Rows of the statement by which the server's speed is found.
const TRIAL: f64 = 200_000.0;

pub(super) async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    let server = PrivateServerOptions { cpu: options.cpu, ..PrivateServerOptions::default() };
    let server = blocking(move || Ok(PrivateServer::start(&server)?)).await?;
    let class = "[{ name = \"fill\", application = \"fill\", background = true }]";
    let keys =
        [("connections", "8"), ("class", class)].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let port = server.port();
    let gate = blocking(move || Gatekeeper::start(port, &keys)).await?;
    let direct = Target::parse(&server.dsn())?.connect().await?;
    let through = Target::parse(&server.dsn_through(gate.port()))?;
    let mut trials = Vec::new();
    for _ in 0..9 {
        let begun = Instant::now();
        ask(&direct, &format!("SELECT count(*) FROM generate_series(1, {TRIAL})")).await?;
        trials.push(begun.elapsed().as_secs_f64());
    }
    let rows = |seconds: f64| (TRIAL * seconds / percentile(&trials, 0.5)).round();
    let short = format!("SELECT count(*) FROM generate_series(1, {})", rows(SHORT));
    let long = format!(
        "SELECT extract(epoch FROM statement_timestamp()), count(*) FROM generate_series(1, {})",
        rows(LONG)
    );
    display.now("crowds alone");
    let alone = crowds(&through, &short).await?;
    let (is_over, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let mut filling = JoinSet::new();
    for _ in 0..BACKGROUND {
        let (client, long) = (through.of("fill").connect().await?, long.clone());
        let (is_over, ran) = (Arc::clone(&is_over), Arc::clone(&ran));
        filling.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let began = ask(&client, &long).await?.parse().unwrap_or(f64::NAN);
                ran.lock().unwrap_or_else(PoisonError::into_inner).push((began, epoch()));
            }
            Ok::<(), Error>(())
        });
    }
    display.now("crowds beside the background");
    let beside = crowds(&through, &short).await?;
    is_over.store(true, Ordering::Relaxed);
    while let Some(filled) = filling.join_next().await {
        filled.map_err(|error| Error::Experiment(format!("the background ended: {error}")))??;
    }
    let ran = ran.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let text = report(&alone, &beside, &ran);
    display.say(&text);
    Ok(text)
}

/// A crowd: when it came, and of each request when that was sent, after that, and how long it took.
struct Came {
    at: f64,
    requests: Vec<(f64, f64)>,
}

async fn crowds(target: &Target, short: &str) -> Result<Vec<Came>, Error> {
    let request = RequestType::new("short", 1.0, Unit::Statements, &[], &[short])?;
    let mix = Arc::new(Mix::new(vec![request])?);
    let crowd = Crowd {
        groups: vec![Group { target: target.of("crowd"), mix, clients: CROWD, think: Duration::ZERO }],
        connecting: Connecting::Once,
        timeout: PATIENCE,
        warm_up: Duration::ZERO,
        window: STAYS,
        drain: PATIENCE,
        seed: 1,
    };
    let mut all = Vec::new();
    for _ in 0..CROWDS {
        tokio::time::sleep(PAUSE).await;
        let mut at = 0.0;
        let outcome = crowd.run(|_| at = epoch()).await?;
        if let Some(failure) = outcome.first_failure {
            return Err(Error::Experiment(format!("a request of the crowd failed: {failure}")));
        }
        let times = |record: &Record| (record.due.as_secs_f64(), record.response.as_secs_f64());
        let requests = outcome.groups.iter().flat_map(|group| &group.records).map(times).collect();
        all.push(Came { at, requests });
    }
    Ok(all)
}

/// The first column of the answer.
async fn ask(client: &Client, sql: &str) -> Result<String, Error> {
    Ok(client.column(sql).await.map_err(Error::database("asking"))?.concat())
}

fn epoch() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// `ran` has of each background statement when the server got it, and when it had ended.
fn report(alone: &[Came], beside: &[Came], ran: &[(f64, f64)]) -> String {
    let stays = STAYS.as_secs_f64();
    let of = |came: &Came| {
        let within = ran.iter().filter(|(began, ended)| *began < came.at + stays && *ended > came.at);
        let last = |time: fn(&(f64, f64)) -> f64| within.clone().map(time).fold(came.at, f64::max) - came.at;
        (last(|it| it.0), last(|it| it.1))
    };
    let (began, ended): (Vec<f64>, Vec<f64>) = beside.iter().map(of).unzip();
    let took = |crowds: &[Came], is_early: bool| {
        let requests = crowds.iter().flat_map(|came| &came.requests);
        let took: Vec<f64> = requests.filter(|it| (it.0 < GOAL) == is_early).map(|it| 1e3 * it.1).collect();
        format!("{:.1} (p95 {:.1})", mean(&took), percentile(&took, 0.95))
    };
    let millis =
        |times: &[f64]| format!("{:.0} (at most {:.0})", 1e3 * mean(times), 1e3 * percentile(times, 1.0));
    format!(
        "  the background: after a crowd has come, its last statement begins after {} ms and has ended after {} ms\n  a \
         request of the crowd in the first {:.0} ms takes {} ms, without the background {}; later {}, without {}\n",
        millis(&began),
        millis(&ended),
        1e3 * GOAL,
        took(beside, true),
        took(alone, true),
        took(beside, false),
        took(alone, false),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_when_the_crowd_comes_counts_and_what_ran_before_does_not() {
        let came = |at| Came { at, requests: vec![(0.1, 0.03), (0.5, 0.02)] };
        let ran = [(9.0, 9.9), (9.98, 10.05), (10.01, 10.08), (11.0, 11.05)];
        let said = report(&[came(0.0)], &[came(10.0)], &ran);
        assert!(
            said.contains("begins after 10 (at most 10) ms and has ended after 80 (at most 80)"),
            "{said}"
        );
        assert!(said.contains("takes 30.0 (p95 30.0) ms") && said.contains("later 20.0"), "{said}");
    }
}
