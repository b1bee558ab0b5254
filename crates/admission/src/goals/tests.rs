//! Tests of an adapter with a resource whose delays are given.

use super::*;

const TICK: Duration = Duration::from_secs(1);

fn delay(statistic: Statistic, seconds: f64) -> Option<ClassGoal> {
    let most = Duration::from_secs_f64(seconds);
    Some(ClassGoal::Delay { measure: Measure::Wait, statistic, most })
}

fn class(id: u64, goal: Option<ClassGoal>) -> Promised {
    Promised::new(ClassId(id), goal)
}

#[test]
fn shares_that_were_learned_are_recalled_where_the_weight_is_the_same() {
    let goal = delay(Statistic::Mean, 0.1);
    let classes = [class(1, goal), class(2, None), class(3, None)];
    let mut old = Bench::new(10, &classes);
    (0..100).for_each(|_| _ = old.tick(20, &[0.3, 0.02, 0.02]));
    let learned = old.adapter.learned();
    assert!(learned[0].share > 0.5, "{learned:?}");
    let new = |classes: &[Promised], learned: &[LearnedShare]| {
        let mut new = Bench::new(10, classes);
        new.adapter.recall(learned);
        [0, 1, 2].map(|place| new.adapter.share(place))
    };
    let same = new(&classes, &learned);
    assert!((0..3).all(|place| (same[place] - old.adapter.share(place)).abs() < 1e-9), "{same:?}");
    // Another weight is what the operator wants now, and a file may say anything.
    let weight = new(&[Promised { weight: 3.0, ..classes[0] }, classes[1], classes[2]], &learned);
    assert!(weight[0] < old.adapter.share(0), "{weight:?}");
    for share in [f64::NAN, -1.0, 0.0, 7.0, f64::INFINITY] {
        let wrong = new(&classes, &[LearnedShare { share, ..learned[0] }]);
        assert!((wrong[0] - 1.0 / 3.0).abs() < 1e-9, "{share}: {wrong:?}");
    }
}

/// An adapter and the clock of its resource.
struct Bench {
    adapter: Adapter,
    now: Instant,
}

impl Bench {
    fn new(interval: u32, classes: &[Promised]) -> Self {
        let settings = Adaptation { tick: TICK, interval };
        Self { adapter: Adapter::new(Instant::ZERO, settings, classes), now: Instant::ZERO }
    }

    /// A tick in which each class has so many requests that all wait for so long.
    fn tick(&mut self, count: u32, waits: &[f64]) -> bool {
        for (place, &wait) in waits.iter().enumerate() {
            self.serve(place, count, wait, 0.0);
        }
        self.end()
    }

    fn serve(&mut self, place: usize, count: u32, wait: f64, service: f64) {
        let [wait, service] = [wait, service].map(Duration::from_secs_f64);
        for _ in 0..count {
            let served = Served { arrived: self.now, wait, service, work: Work::from_nanos(1_000_000) };
            self.adapter.observe(place, served);
        }
    }

    fn end(&mut self) -> bool {
        self.now = self.now.after(TICK);
        self.adapter.pass(self.now, |_| true)
    }

    /// Ticks of ten workers that serve each request for 50 ms. Of each class so many clients ask at any time.
    fn play(&mut self, ticks: u32, clients: [u32; 3]) {
        for _ in 0..ticks {
            let asking: f64 = self.asking(clients).map(|place| self.adapter.share(place)).sum();
            for place in self.asking(clients) {
                let rate = 200.0 * self.adapter.share(place) / asking;
                let response = (f64::from(clients[place]) / rate).max(0.05);
                let count = f64::from(clients[place]) / response;
                self.serve(place, count as u32, response - 0.05, 0.05);
            }
            self.now = self.now.after(TICK);
            self.adapter.pass(self.now, |place| clients[place] > 0);
        }
    }

    fn asking(&self, clients: [u32; 3]) -> impl Iterator<Item = usize> + use<> {
        (0..3).filter(move |&place| clients[place] > 0)
    }

    fn shares(&self) -> Vec<f64> {
        (0..self.adapter.members.len()).map(|place| self.adapter.share(place)).collect()
    }

    fn news(&mut self) -> Vec<GoalNews> {
        core::iter::from_fn(|| self.adapter.poll_news()).collect()
    }
}

fn close(found: &[f64], wanted: &[f64]) {
    let is_close = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6);
    assert!(is_close && found.len() == wanted.len(), "{found:?} instead of {wanted:?}");
}

#[test]
fn a_move_says_which_class_got_what_from_whom_and_why() {
    let goals = [class(1, delay(Statistic::Percentile(95), 0.15)), class(2, None), class(3, None)];
    let goals = [goals[0], goals[1], Promised { weight: 2.0, ..goals[2] }];
    let mut bench = Bench::new(20, &goals);
    assert!(!bench.tick(50, &[0.212, 0.05, 0.05]) && !bench.tick(50, &[0.212, 0.05, 0.05]));
    assert!(bench.tick(50, &[0.212, 0.05, 0.05]));
    let [GoalNews::Moved(told)] = bench.news()[..] else { panic!("one class got more") };
    assert_eq!((told.class, told.donor), (ClassId(1), ClassId(3)), "the largest share gives the most");
    assert!((told.from - 0.25).abs() < 1e-9 && told.to > 0.27, "{told:?}");
    let why = told.why.expect("a goal was missed");
    assert!((why.observed / 0.212 - 1.0).abs() < 0.1 && why.goal == goals[0].goal.unwrap(), "{why:?}");
    let sum: f64 = bench.shares().iter().sum();
    assert!((sum - 1.0).abs() < 1e-9);
}

#[test]
fn requests_that_came_under_former_shares_do_not_count() {
    let mut bench = Bench::new(20, &[class(1, delay(Statistic::Mean, 0.1)), class(2, None)]);
    while !bench.tick(50, &[0.3, 0.3]) {}
    let since = bench.now;
    let work = Work::from_nanos(1_000_000);
    let late = Served { arrived: Instant::ZERO, wait: TICK * 9, service: Duration::ZERO, work };
    bench.adapter.observe(0, late);
    assert_eq!(bench.adapter.reached(0), None, "nothing is known of the new shares");
    bench.adapter.observe(0, Served { arrived: since, wait: TICK / 10, ..late });
    bench.now = bench.now.after(TICK);
    bench.adapter.pass(bench.now, |_| false);
    let reached = bench.adapter.reached(0).expect("one request");
    assert!((reached.observed - 0.1).abs() < 1e-9, "{reached:?}");
}

#[test]
fn a_throughput_is_a_goal_only_while_its_class_asks_for_more() {
    let goal = Some(ClassGoal::Throughput { millihertz: 100_000 });
    let mut bench = Bench::new(20, &[class(1, goal), class(2, None)]);
    let first = bench.shares()[0];
    for _ in 0..6 {
        bench.tick(50, &[0.2, 0.2]);
    }
    assert!(bench.shares()[0] > first + 0.1, "50 of 100 requests a second: {:?}", bench.shares());
    let mut idle = Bench::new(20, &[class(1, goal), class(2, None)]);
    for _ in 0..60 {
        idle.now = idle.now.after(TICK);
        assert!(!idle.adapter.pass(idle.now, |_| false), "it asks for less");
    }
}

#[test]
fn a_share_stays_between_its_floor_and_its_ceiling() {
    let share = |part| Share::new(part).expect("a share");
    let missing = Promised { ceiling: share(0.7), ..class(1, delay(Statistic::Mean, 0.01)) };
    let giving = Promised { floor: share(0.2), ..class(2, delay(Statistic::Mean, 9.0)) };
    let mut bench = Bench::new(2, &[missing, giving, class(3, delay(Statistic::Mean, 9.0))]);
    for _ in 0..200 {
        bench.tick(50, &[1.0, 0.5, 0.5]);
    }
    let shares = bench.shares();
    assert!(shares[0] <= 0.7 + 1e-9 && shares[0] > 0.69, "{shares:?}");
    assert!(shares[1] >= 0.2 - 1e-9 && shares[2] >= 0.01 - 1e-9, "{shares:?}");
    assert_eq!(bench.adapter.standing(0), Standing::OutOfReach, "with all that it may have");
}

#[test]
fn of_goals_that_cannot_be_met_the_least_important_goes_within_three_intervals() {
    let mean = |seconds| delay(Statistic::Mean, seconds);
    let gold = Promised { importance: 1, ..class(1, mean(0.05)) };
    let mut bench = Bench::new(10, &[gold, class(2, mean(0.15))]);
    // Whatever the shares, the sum of both waits is 0.4: twice what the goals allow.
    for _ in 0..30 {
        let is_enough = bench.shares()[0] > 0.8;
        bench.tick(50, if is_enough { &[0.05, 0.35] } else { &[0.16, 0.24] });
    }
    assert_eq!(bench.adapter.standing(1), Standing::GivenUp);
    assert_eq!(bench.adapter.standing(0), Standing::InReach);
    let told = |news: &GoalNews| matches!(news, GoalNews::OutOfReach(told, _) if told.class == ClassId(2));
    assert!(bench.news().iter().any(told));
    assert!(bench.shares()[0] > 0.6, "the more important class takes from it: {:?}", bench.shares());
    for _ in 0..30 {
        bench.tick(50, &[0.02, 0.1]);
    }
    assert_eq!(bench.adapter.standing(1), Standing::InReach, "it is met again");
    assert!(bench.news().iter().any(|news| matches!(news, GoalNews::WithinReach(_))));
}

#[test]
fn what_was_missed_before_a_move_counts_though_nobody_waits_after_it() {
    let mean = |seconds| delay(Statistic::Mean, seconds);
    let gold = Promised { importance: 1, ..class(1, mean(0.05)) };
    let mut bench = Bench::new(10, &[gold, class(2, mean(0.15))]);
    for tick in 0..20 {
        if tick % 10 == 9 {
            // As right after a move.
            bench.adapter.members.iter_mut().for_each(|member| member.window = Window::default());
            bench.tick(50, &[0.01, 0.01]);
        } else {
            bench.tick(50, &[0.16, 0.24]);
        }
    }
    assert_eq!(bench.adapter.standing(1), Standing::GivenUp);
    assert_eq!(bench.adapter.standing(0), Standing::InReach);
}

#[test]
fn percentiles_that_are_missed_are_told_to_be_too_much_together() {
    let p95 = |seconds| delay(Statistic::Percentile(95), seconds);
    let gold = Promised { importance: 1, ..class(1, p95(0.05)) };
    let mut bench = Bench::new(10, &[gold, class(2, p95(0.15))]);
    for _ in 0..30 {
        let is_enough = bench.shares()[0] > 0.8;
        bench.tick(50, if is_enough { &[0.05, 0.35] } else { &[0.16, 0.24] });
    }
    assert_eq!(bench.adapter.standing(1), Standing::GivenUp);
    assert_eq!(bench.adapter.standing(0), Standing::InReach);
}

#[test]
fn classes_of_one_importance_are_told_and_nobody_is_given_up() {
    let mean = |seconds| delay(Statistic::Mean, seconds);
    let mut bench = Bench::new(10, &[class(1, mean(0.05)), class(2, mean(0.15))]);
    for _ in 0..30 {
        bench.tick(50, &[0.16, 0.24]);
    }
    for place in 0..2 {
        assert_eq!(bench.adapter.standing(place), Standing::OutOfReach);
    }
}

#[test]
fn goals_that_can_be_met_are_never_told_to_be_out_of_reach() {
    let mean = |seconds| delay(Statistic::Mean, seconds);
    let mut bench = Bench::new(10, &[class(1, mean(0.05)), class(2, mean(0.15))]);
    for _ in 0..100 {
        let is_enough = bench.shares()[0] > 0.6;
        bench.tick(50, if is_enough { &[0.045, 0.135] } else { &[0.09, 0.09] });
    }
    assert!(bench.shares()[0] > 0.6);
    assert!(bench.news().iter().all(|news| matches!(news, GoalNews::Moved(_))));
}

#[test]
fn other_goals_keep_the_shares_and_another_weight_does_not() {
    let mean = |seconds| delay(Statistic::Mean, seconds);
    let classes = [class(1, mean(0.05)), class(2, mean(0.5))];
    let mut bench = Bench::new(20, &classes);
    while !bench.tick(50, &[0.2, 0.2]) {}
    let found = bench.shares();
    assert!(found[0] > 0.55);
    let settings = Adaptation { tick: TICK, interval: 20 };
    bench.adapter.change(bench.now, settings, &[classes[0], class(2, mean(0.6))]);
    close(&bench.shares(), &found);
    let heavier = [Promised { weight: 4.0, ..classes[0] }, Promised { weight: 4.0, ..classes[1] }];
    bench.adapter.change(bench.now, settings, &heavier);
    close(&bench.shares(), &[0.5, 0.5]);
}

fn response(id: u64, importance: u8, seconds: f64) -> Promised {
    let most = Duration::from_secs_f64(seconds);
    let goal = ClassGoal::Delay { measure: Measure::Response, statistic: Statistic::Mean, most };
    Promised { importance, ..class(id, Some(goal)) }
}

fn is_told_out_of_reach(news: &[GoalNews], id: u64) -> bool {
    news.iter().any(|news| matches!(news, GoalNews::OutOfReach(told, _) if told.class == ClassId(id)))
}

#[test]
fn a_goal_shorter_than_the_service_is_told_after_an_interval_and_costs_no_important_goal() {
    let mut bench = Bench::new(20, &[response(1, 10, 0.2), response(2, 1, 0.001), class(3, None)]);
    bench.play(25, [20, 5, 60]);
    assert!(is_told_out_of_reach(&bench.news(), 2));
    for _ in 0..200 {
        bench.play(1, [20, 5, 60]);
        let gold = bench.adapter.reached(0);
        assert!(gold.is_none_or(|gold| gold.observed < 0.22), "{gold:?} {:?}", bench.shares());
    }
    assert_ne!(bench.adapter.standing(1), Standing::InReach);
    assert_eq!(bench.adapter.standing(0), Standing::InReach);
    assert!(!is_told_out_of_reach(&bench.news(), 1));
}

#[test]
fn goals_are_too_much_together_beside_a_class_without_one_at_its_floor() {
    // Of 200 requests a second gold needs 100, silver 125.
    let mut bench = Bench::new(10, &[response(1, 10, 0.2), response(2, 1, 0.16), class(3, None)]);
    bench.play(100, [20, 20, 60]);
    assert_eq!([0, 1].map(|place| bench.adapter.standing(place)), [Standing::InReach, Standing::GivenUp]);
    assert!(is_told_out_of_reach(&bench.news(), 2));
    let gold = 20.0 / 200.0 / bench.shares()[0];
    assert!(gold < 0.22, "gold keeps its goal: {gold}");
}

#[test]
fn a_more_important_class_that_misses_its_goal_takes_from_a_less_important_one_that_misses_more() {
    let mut bench = Bench::new(20, &[response(1, 10, 0.15), response(2, 1, 0.06), class(3, None)]);
    // The law gives up the other goal only after two intervals.
    bench.play(39, [20, 20, 0]);
    let gold = 20.0 / 200.0 / bench.shares()[0] * (bench.shares()[0] + bench.shares()[1]);
    assert!(gold < 0.15 * 1.11, "{gold} {:?}", bench.shares());
}

#[test]
fn a_class_takes_from_a_more_important_one_only_what_that_has_to_spare() {
    let mut bench = Bench::new(20, &[response(1, 10, 0.25), response(2, 1, 0.06), class(3, None)]);
    for _ in 0..100 {
        bench.play(1, [20, 20, 0]);
        let gold = 20.0 / 200.0 / bench.shares()[0] * (bench.shares()[0] + bench.shares()[1]);
        assert!(gold < 0.25 * 1.05, "{gold} {:?}", bench.shares());
    }
}

#[test]
fn a_class_without_requests_is_idle_and_the_others_move_what_they_have() {
    let mut bench = Bench::new(20, &[response(1, 10, 0.2), response(2, 20, 0.06), class(3, None)]);
    bench.play(60, [0, 20, 60]);
    assert_eq!(bench.adapter.standing(0), Standing::Idle, "nobody ever asked for it");
    bench.play(20, [20, 0, 60]);
    let large = bench.shares()[1];
    assert!(large > 0.5, "{:?}", bench.shares());
    bench.play(60, [20, 0, 60]);
    assert_eq!((bench.adapter.standing(1), bench.adapter.reached(1)), (Standing::Idle, None));
    let gold = bench.adapter.reached(0).expect("it is asked for");
    assert!(gold.observed < 0.22, "{gold:?} {:?}", bench.shares());
    assert!((bench.shares()[1] - large).abs() < 0.02, "its share is as it left it: {:?}", bench.shares());
    bench.play(1, [20, 20, 60]);
    assert_eq!(bench.adapter.standing(1), Standing::InReach);
    assert!(bench.shares().iter().all(|&share| share >= 0.01 - 1e-9), "{:?}", bench.shares());
    assert!((bench.shares()[1] - large).abs() < 0.02, "it has its share again: {:?}", bench.shares());
}
