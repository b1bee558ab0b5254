//! Advice beside the truth: a service that the test knows, a trace that is recorded of it behind the
//! settings, the advice from the file alone, and what each setting really does to the service.

use std::io::Write as _;

use admission::{Instant, PoolId, Work};
use proxy::trace::{Encoder, Entry, Header, Item, What, begin, block};
use sim::{
    Arrivals, Chance, Collapse, Distribution, Kind, Mix, Purpose, Rate, Run, Service, Source, Upstream,
};

use super::*;

/// How many requests a scenario has, about.
const REQUESTS: f64 = 20_000.0;
/// A choice is right whose true mean response time is this close to the best: settings may do the same.
const ALIKE: f64 = WORTH;

/// A service and who asks, and the settings in force.
struct Truth {
    scenario: Scenario,
    configuration: String,
}

impl Truth {
    /// One by chance. The number says which; nothing was tuned with numbers from 200.
    fn drawn(number: u64) -> Self {
        let mut chance = Chance::new(number, Purpose::Visit, 0);
        let mut one_of = |all: &[f64]| all[(chance.unit() * all.len() as f64) as usize % all.len()];
        let cores = one_of(&[1.0, 2.0, 4.0]) as u32;
        let load = one_of(&[0.4, 0.7, 0.85, 0.95]);
        let short = one_of(&[1.0, 3.0, 8.0]);
        let long = short * one_of(&[1.0, 10.0, 60.0]);
        let share = one_of(&[0.01, 0.05, 0.2]);
        let cv = one_of(&[0.3, 1.0, 1.5]);
        let connections = cores * one_of(&[2.0, 4.0, 8.0]) as u32;
        let order = ["fifo", "shortest-first"][one_of(&[0.0, 1.0]) as usize];
        let long_limit = ["none", "auto"][one_of(&[0.0, 1.0]) as usize];
        let mut upstream = Upstream::sharing(cores, Collapse::None);
        if one_of(&[0.0, 0.0, 1.0]) > 0.0 {
            upstream.service = Service::Fifo { servers: cores };
        }
        let millis = |mean: f64| Distribution::Lognormal { mean: Duration::from_secs_f64(mean / 1e3), cv };
        let types = vec![Kind::new("short", millis(short)), Kind::new("long", millis(long))];
        Self::new(
            types,
            vec![1.0 - share, share],
            (load, upstream),
            &format!("connections = {connections}\norder = \"{order}\"\nlong_limit = \"{long_limit}\"\n"),
        )
    }

    fn new(types: Vec<Kind>, shares: Vec<f64>, (load, upstream): (f64, Upstream), settings: &str) -> Self {
        let configuration = format!(
            "[[gate]]\nname = \"shop\"\nupstream = \"127.0.0.1:1\"\ncapacity = \"none\"\nqueue_max = 1000000\n\
             queue_timeout = \"60s\"\n{settings}"
        );
        let rate = load * f64::from(upstream.cores()) / Scenario::mean_service_time(&types, &shares);
        let source = Source::new(Arrivals::Poisson(Rate::constant(rate)), Mix::Shares(shares));
        let scenario = Scenario {
            warm_up: Duration::ZERO,
            duration: Duration::from_secs_f64(REQUESTS / rate),
            ..Scenario::new(Policy::default(), types, source, upstream)
        };
        Self { scenario, configuration }
    }

    /// What these settings really do.
    fn run(&self, keys: &[(&'static str, String)]) -> Run {
        let world = config::parse(config::Origin::CommandLine, &self.configuration).expect("it is right");
        let world = config::amended(&world, keys).expect("it is right");
        let gate = world.gates.first().expect("a gate");
        let mut policy = gate.policy_of(|_| None);
        if gate.long_limit == LongLimit::Auto {
            policy.long_limit =
                Some(admission::LongLimit::Found { cores: Some(self.scenario.upstream.cores()) });
        }
        sim::run(&Scenario { policy, ..self.scenario.clone() }).expect("it runs")
    }

    /// The trace of the settings in force, as a gatekeeper would have written it.
    fn record(&self, run: &Run, mode: &str) -> tempfile::NamedTempFile {
        let mut entries: Vec<(u64, u64, What)> = Vec::new();
        for (sequence, row) in run.rows.iter().enumerate() {
            let mut note = |at: Instant, what| entries.push((at.as_nanos(), sequence as u64, what));
            let request_type = Scenario::request_type(row.kind as usize);
            note(
                row.arrived,
                What::Arrived {
                    request_type,
                    class: self.scenario.sources[usize::from(row.source)].class,
                    pool: PoolId::default(),
                    held: false,
                    immediate: false,
                    deadline: None,
                },
            );
            match (row.dispatched, row.outcome) {
                (Some(dispatched), _) => {
                    note(dispatched, What::Dispatched { work: Work::ZERO });
                    let (outcome, upstream_time) = (admission::Outcome::Success, row.upstream_time());
                    note(row.ended, What::Completed { outcome, upstream_time });
                }
                (None, Outcome::Rejected(reason)) => note(row.ended, What::Rejected(reason)),
                (None, _) => note(row.ended, What::Left),
            }
        }
        entries.sort_by_key(|&(at, sequence, _)| (at, sequence));
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        let header = Header {
            gatekeeper: "1.0.0".to_owned(),
            gate: "shop".to_owned(),
            mode: mode.to_owned(),
            configuration: self.configuration.clone(),
            began_unix_seconds: 0,
        };
        file.write_all(&begin(&header).expect("it is JSON")).expect("it is written");
        for (number, entries) in entries.chunks(10_000).enumerate() {
            let mut encoder = Encoder::default();
            if number == 0 {
                for (at, kind) in self.scenario.types.iter().enumerate() {
                    let request_type = Scenario::request_type(at);
                    encoder.push(&Item::Type { request_type, label: kind.name.clone() });
                }
            }
            for &(at, sequence, what) in entries {
                encoder.push(&Item::Entry(Entry { at: Instant::from_nanos(at), sequence, what }));
            }
            file.write_all(&block(&encoder.take())).expect("it is written");
        }
        file
    }

    /// The advice from the file, whose reader is told of the cores.
    fn advised(&self, run: &Run) -> Advice {
        let file = self.record(run, "enforce");
        let args = args(file.path(), self.scenario.upstream.cores());
        let recorded = well(Recorded::read(&args.trace, true));
        well(Advice::of(recorded, &args.advice))
    }

    fn measured(&self, run: &Run) -> Measured {
        Measured::of(&run.rows, Duration::from_secs(60))
    }
}

/// What came of a command that went well.
fn well<T>(result: Result<T, Failure>) -> T {
    result.map_err(|failure| failure.message().to_owned()).expect("it goes well")
}

fn args(trace: &std::path::Path, cores: u32) -> AdviseArgs {
    AdviseArgs {
        trace: trace.to_owned(),
        advice: AdviceArgs {
            last: Duration::from_secs(86_400),
            cores: std::num::NonZero::new(cores),
            service_times: ServiceTimes::Shared,
            threads: None,
        },
        partial: false,
    }
}

/// Whether the advice for a drawn scenario is right: the best of what was tried, or nothing.
fn is_right(number: u64) -> bool {
    let truth = Truth::drawn(number);
    let run = truth.run(&[]);
    let base = truth.measured(&run).mean;
    let advice = truth.advised(&run);
    let means: Vec<(String, f64)> = advice
        .findings
        .iter()
        .map(|it| (it.setting.words(), truth.measured(&truth.run(&it.setting.keys)).mean))
        .collect();
    let least = means.iter().map(|(_, mean)| *mean).fold(base, f64::min);
    let chosen = advice.best().map(|best| best.setting.words());
    let taken = match &chosen {
        Some(words) => means.iter().find(|(name, _)| name == words).map_or(base, |(_, mean)| *mean),
        None => base,
    };
    let is_right = taken <= least / (1.0 - ALIKE);
    println!(
        "{number}: {is_right}, {:?} of {:?}, {chosen:?}, {taken:.4} of {least:.4}, in force {base:.4}\n{}",
        advice.known,
        truth.scenario.upstream.service,
        advice.text(advice.nothing_better())
    );
    is_right
}

#[test]
fn of_ten_scenarios_nine_are_advised_the_best_of_the_tried_settings() {
    let right = (200..210).filter(|&number| is_right(number)).count();
    assert!(right >= 9, "{right} of 10");
}

#[test]
fn nothing_is_said_where_nothing_helps() {
    // Requests that are all alike, on a service with room for all.
    let types = vec![Kind::new("page", Distribution::Fixed(Duration::from_millis(5)))];
    let service = (0.2, Upstream::sharing(4, Collapse::None));
    let truth = Truth::new(types, vec![1.0], service, "connections = 40\norder = \"shortest-first\"\n");
    let advice = truth.advised(&truth.run(&[]));
    assert!(advice.best().is_none(), "{}", advice.text(advice.nothing_better()));
    let text = advice.text(advice.nothing_better());
    let (tried, mean) = (advice.findings.len(), time(advice.base.mean));
    let told = format!(
        "None of the {tried} settings that were tried would have been better than {mean} on average.\n"
    );
    assert_eq!(text, told);
}

#[test]
fn guessed_cores_are_said_first_whatever_follows() {
    let types = vec![Kind::new("page", Distribution::Fixed(Duration::from_millis(5)))];
    let settings = "connections = 40\nlong_limit = \"none\"\n";
    let truth = Truth::new(types, vec![1.0], (0.2, Upstream::sharing(4, Collapse::None)), settings);
    let file = truth.record(&truth.run(&[]), "enforce");
    let args = args(file.path(), 0);
    let mut advice = well(Advice::of(well(Recorded::read(&args.trace, true)), &args.advice));
    let guess = "The service's 4 cores are a guess (name them with --cores). ";
    assert!(advice.text(advice.nothing_better()).starts_with(&format!("{guess}None of the ")));
    advice.misfit.1 = Some("It does not fit.\n".to_owned());
    assert_eq!(advice.text(advice.nothing_better()), format!("{guess}It does not fit.\n"));
}

#[test]
fn what_is_foretold_of_more_connections_and_of_a_second_core_comes_true_within_a_fifth() {
    let near = |told: f64, came: f64, what: &str| {
        assert!((told / came - 1.0).abs() <= 0.2, "{what}: foretold {told:.4} s, came {came:.4} s");
    };
    let types = || {
        let of = |mean, cv| Distribution::Lognormal { mean: Duration::from_millis(mean), cv };
        vec![Kind::new("page", of(10, 1.0)), Kind::new("report", of(200, 0.5))]
    };
    let truth = Truth::new(
        types(),
        vec![0.95, 0.05],
        (0.8, Upstream::sharing(16, Collapse::None)),
        "connections = 20\norder = \"fifo\"\nlong_limit = \"none\"\n",
    );
    let advice = truth.advised(&truth.run(&[]));
    let more =
        advice.findings.iter().find(|it| it.setting.words() == "connections = 60").expect("it is tried");
    let came = truth.measured(&truth.run(&more.setting.keys));
    near(more.measured.mean, came.mean, "60 connections, mean");
    near(more.measured.p95, came.p95, "60 connections, p95");

    let mut truth = Truth::new(
        types(),
        vec![0.95, 0.05],
        (0.8, Upstream::sharing(1, Collapse::None)),
        "connections = 20\norder = \"fifo\"\nlong_limit = \"none\"\n",
    );
    let advice = truth.advised(&truth.run(&[]));
    truth.scenario.upstream.set_cores(2);
    let came = truth.measured(&truth.run(&[]));
    let (_, doubled) = &advice.larger[0];
    near(doubled.measured.mean, came.mean, "two cores, mean");
    near(doubled.measured.p95, came.p95, "two cores, p95");
    assert_eq!(advice.larger.len(), 1, "a gate for a database has one server");
}

#[test]
fn a_second_replica_and_other_weights_do_what_they_are_said_to_do() {
    let of = |mean, cv| Distribution::Lognormal { mean: Duration::from_millis(mean), cv };
    let types = vec![Kind::new("page", of(10, 0.5)), Kind::new("report", of(100, 0.5))];
    let settings = "protocol = \"http\"\nconnections = 4\norder = \"fifo\"\nlong_limit = \"none\"\n\
                    [[gate.class]]\nname = \"default\"\nweight = 1\n\
                    [[gate.class]]\nname = \"batch\"\nweight = 4\npath = \"/batch\"\n";
    let mut truth = Truth::new(types, vec![0.9, 0.1], (0.45, Upstream::sharing(2, Collapse::None)), settings);
    let batch = Source {
        class: ClassId::named("batch"),
        mix: Mix::Shares(vec![0.1, 0.9]),
        arrivals: Arrivals::Poisson(Rate::constant(9.0)),
        ..truth.scenario.sources[0].clone()
    };
    truth.scenario.sources.push(batch);
    let advice = truth.advised(&truth.run(&[]));
    let near = |told: &Measured, run: &Run, what: &str| {
        let came = truth.measured(run).mean;
        assert!(
            (told.mean / came - 1.0).abs() <= 0.2,
            "{what}: foretold {:.4} s, came {came:.4} s",
            told.mean
        );
    };
    let with_weight = |class: &str, from: &str, to: &str| {
        let from = format!("\"{class}\"\nweight = {from}\n");
        let configuration = truth.configuration.replace(&from, &format!("\"{class}\"\nweight = {to}\n"));
        assert_ne!(configuration, truth.configuration);
        Truth { configuration, scenario: truth.scenario.clone() }.run(&[])
    };
    for (class, from, to) in
        [("default", "1", "2"), ("default", "1", "0.5"), ("batch", "4", "8"), ("batch", "4", "2")]
    {
        let words = format!("weight = {to} of class {class}");
        let tried = advice.findings.iter().find(|it| it.setting.words() == words);
        near(&tried.expect("it is tried").measured, &with_weight(class, from, to), &words);
    }
    let words = "weight = 2 of class batch";
    let eased = advice.findings.iter().find(|it| it.setting.words() == words).expect("it is tried");
    let told = advice.advised(eased, "1m");
    let paid = format!("; those of class batch {} instead of ", time(eased.measured.classes[1]));
    assert!(told.lines().next().is_some_and(|first| first.contains(&paid)), "{told}");
    assert!(told.contains("Also tried: ") && told.contains(" with a second replica as large, "), "{told}");

    let (what, replicated) = &advice.larger[1];
    let mut scenario = truth.scenario.clone();
    scenario.upstream.replicas = 2;
    let twice = Truth { scenario, configuration: truth.configuration.clone() };
    near(&replicated.measured, &twice.run(&[]), what);
}

#[test]
fn a_gate_that_observed_hears_what_it_would_have_done() {
    let types = vec![
        Kind::new("page", Distribution::Fixed(Duration::from_millis(2))),
        Kind::new("report", Distribution::Fixed(Duration::from_millis(200))),
    ];
    let settings = "connections = 4\nlong_limit = \"auto\"\n";
    let truth = Truth::new(types, vec![0.97, 0.03], (0.9, Upstream::sharing(2, Collapse::None)), settings);
    // All pass, and the shadow foresees waits.
    let mut run = sim::run(&Scenario {
        policy: Policy { connections: u32::MAX, long_limit: None, ..Policy::default() },
        ..truth.scenario.clone()
    })
    .expect("it runs");
    let really = truth.measured(&run).mean;
    for row in run.rows.iter_mut().filter(|row| row.kind == 1) {
        let wait = Duration::from_millis(50);
        (row.dispatched, row.ended) = (row.dispatched.map(|at| at.after(wait)), row.ended.after(wait));
    }
    let delayed = run.rows.iter().filter(|row| row.kind == 1).count();
    let file = truth.record(&run, "observe");
    let told = well(advise(&args(file.path(), 2)));
    let first = told.lines().next().unwrap_or_default();
    assert!(first.contains(&format!("would have delayed {delayed} requests and refused 0")), "{told}");
    assert!(first.ends_with(&format!("instead of {}.", time(really))), "{told}");
    assert!(!told.contains("does not fit"), "{told}");
}

/// What an enforcing gate makes of this service with these settings, told to a gate that lets all pass, where
/// requests take `now` seconds.
fn told_beside(truth: &Truth, now: f64) -> (Advice, String) {
    let mut advice = truth.advised(&truth.run(&[]));
    let enforcing = if now < advice.base.mean { Enforcing::Harms } else { Enforcing::Helps };
    advice.observed = Some((Observed { delayed: 1, refused: 0, without: now }, enforcing));
    let text = advice.text(String::new());
    (advice, text)
}

#[test]
fn what_is_advised_to_a_gate_that_observes_stands_beside_what_clients_have_now() {
    let of = |mean, cv| Distribution::Lognormal { mean: Duration::from_millis(mean), cv };
    let types = vec![Kind::new("page", of(10, 1.0)), Kind::new("report", of(200, 0.5))];
    let settings = "connections = 4\norder = \"fifo\"\nlong_limit = \"none\"\n";
    let truth = Truth::new(types, vec![0.95, 0.05], (0.8, Upstream::sharing(4, Collapse::None)), settings);
    let (advice, told) = told_beside(&truth, 0.001);
    let best = advice.best().expect("an order helps");
    let enforced = time(advice.base.mean);
    let first = format!(
        "In the last {} this gate would have delayed 1 request and refused 0, and saved nothing: requests take 1.00ms \
         on average now, and would have taken {enforced} with these settings enforced, which is worse.",
        spoken(advice.span)
    );
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[0], first);
    assert!(
        lines[1].contains(&format!("instead of {enforced} with the settings enforced as they are (")),
        "{told}"
    );
    assert_eq!(lines[2], "That is worse than letting all pass, as now: 1.00ms.");
    let (_, told) = told_beside(&truth, best.measured.mean * 10.0);
    let better = format!("That is better than now: {}.", time(best.measured.mean * 10.0));
    assert_eq!(told.lines().nth(2), Some(better.as_str()));
}

#[test]
fn a_setting_that_seems_better_than_the_advised_one_has_the_reason_beside_it() {
    let of = |mean, cv| Distribution::Lognormal { mean: Duration::from_millis(mean), cv };
    let types = vec![Kind::new("page", of(10, 1.0)), Kind::new("report", of(200, 0.5))];
    let settings = "connections = 4\norder = \"fifo\"\nlong_limit = \"none\"\n";
    let truth = Truth::new(types, vec![0.95, 0.05], (0.8, Upstream::sharing(4, Collapse::None)), settings);
    let mut advice = truth.advised(&truth.run(&[]));
    let best = advice.best().expect("an order helps").clone();
    let other = advice.findings.iter().position(|it| it.setting != best.setting).expect("several are tried");
    let lucky = &mut advice.findings[other];
    lucky.measured.mean = best.measured.mean / 2.0;
    lucky.gain = Interval::of(&[-1.0, 1.0]);
    let words = format!("{}: {} (may be chance)", lucky.setting.words(), time(lucky.measured.mean));
    let told = advice.text(String::new());
    assert!(told.contains(&words), "{told}");
    assert_eq!(told.matches("may be chance").count(), 1, "others seem no better: {told}");
}

#[test]
fn more_company_is_not_advised_where_no_request_had_any() {
    let types = vec![
        Kind::new("page", Distribution::Fixed(Duration::from_millis(2))),
        Kind::new("report", Distribution::Lognormal { mean: Duration::from_millis(100), cv: 1.0 }),
    ];
    let settings = "connections = 2\norder = \"fifo\"\nlong_limit = \"none\"\n";
    let truth = Truth::new(types, vec![0.9, 0.1], (0.7, Upstream::sharing(2, Collapse::None)), settings);
    let advice = truth.advised(&truth.run(&[]));
    assert_eq!(advice.known, Known::Neither);
    let more =
        advice.findings.iter().find(|it| it.setting.words() == "connections = 6").expect("it is tried");
    assert!(more.is_better(&advice.base), "the replay would have it so");
    assert!(
        advice.best().is_none_or(|best| best.setting != more.setting),
        "{}",
        advice.text(advice.nothing_better())
    );
}

#[test]
fn requests_are_replayed_in_the_classes_that_they_were_in() {
    let types = vec![Kind::new("page", Distribution::Exponential { mean: Duration::from_millis(10) })];
    let settings = "connections = 1\norder = \"fifo\"\nlong_limit = \"none\"\n\
                    [[gate.class]]\nname = \"default\"\nweight = 9\n\
                    [[gate.class]]\nname = \"batch\"\nweight = 1\nuser = \"batch\"\n";
    let mut truth = Truth::new(types, vec![1.0], (0.45, Upstream::sharing(1, Collapse::None)), settings);
    let batch = Source { class: ClassId::named("batch"), ..truth.scenario.sources[0].clone() };
    truth.scenario.sources.push(batch);
    let run = truth.run(&[]);
    let file = truth.record(&run, "enforce");
    let recorded = well(Recorded::read(file.path(), false));
    let world = well(world_of(&recorded));
    let replay = |recorded: &Recorded| {
        let scenario = scenario(recorded, &demands(&recorded.requests, 1, ServiceTimes::Shared), 1);
        sim::run(&well(with_gate(&scenario, recorded, &world))).expect("it runs")
    };
    let mean = |run: &Run, class: &str, classes: &[ClassId]| {
        let is_of = |row: &&Row| classes[usize::from(row.source)] == ClassId::named(class);
        demand::mean(run.rows.iter().filter(is_of).map(|row| row.response_time().as_secs_f64()))
            .expect("there are some")
    };
    let of_truth: Vec<_> = truth.scenario.sources.iter().map(|source| source.class).collect();
    let replayed = replay(&recorded);
    for class in ["default", "batch"] {
        let (was, is) = (mean(&run, class, &of_truth), mean(&replayed, class, &recorded.classes));
        assert!((is / was - 1.0).abs() < 0.02, "{class}: {was} s, replayed {is} s");
    }
    let ratio = |run: &Run| mean(run, "batch", &recorded.classes) / mean(run, "default", &recorded.classes);
    assert!(ratio(&replayed) > 1.5, "the weights matter here: {}", ratio(&replayed));
}
