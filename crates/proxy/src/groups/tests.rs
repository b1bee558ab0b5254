//! Groups by files as a kernel has them. `crates/gatekeeper/tests/http_goals.rs` has real ones.

use super::*;

const V2: &[(&str, &str)] = &[
    ("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
    ("sys/fs/cgroup/site/gold/cpu.weight", "100\n"),
    ("sys/fs/cgroup/site/gold/cpu.stat", "usage_usec 2500000\nuser_usec 2000000\n"),
    ("sys/fs/cgroup/site/gold/cpu.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=1500000\n"),
];
const WEIGHT: &str = "sys/fs/cgroup/site/gold/cpu.weight";

fn told(path: &str) -> ClassGroup {
    ClassGroup { class: "gold".to_owned(), path: path.to_owned() }
}

/// A machine with these files, and a gate's groups on it.
fn system(files: &[(&str, &str)], told: &[ClassGroup]) -> (tempfile::TempDir, Groups) {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let groups = Groups { root: root.path().to_owned(), state: Mutex::default() };
    groups.follow(told);
    (root, groups)
}

/// Another gate, which has been told of the same group.
fn another(root: &tempfile::TempDir) -> Groups {
    let groups = Groups { root: root.path().to_owned(), state: Mutex::default() };
    groups.follow(&[told("/site/gold")]);
    groups
}

fn text(root: &tempfile::TempDir, path: &str) -> String {
    std::fs::read_to_string(root.path().join(path)).unwrap().trim().to_owned()
}

fn status(groups: &Groups) -> ProcessorStatus {
    groups.status(ClassId::named("gold")).unwrap()
}

#[test]
fn a_weight_follows_the_share_within_the_kernels_bounds() {
    assert_eq!(Version::V2.weight(1.36), 136);
    assert_eq!(Version::V2.weight(0.001), 1);
    assert_eq!(Version::V2.weight(190.0), 10_000);
    assert_eq!(Version::V1.weight(0.02), 20);
    assert_eq!(Version::V1.weight(0.001), 2);
    assert_eq!(Version::V1.weight(f64::NAN), 2, "never none at all");
}

#[test]
fn in_version_2_the_weight_follows_and_the_groups_own_accounting_is_read() {
    let (root, groups) = system(V2, &[told("/site/gold")]);
    groups.weigh("g", |_| 1.0);
    assert_eq!(text(&root, WEIGHT), "100");
    groups.weigh("g", |_| 1.36);
    assert_eq!(text(&root, WEIGHT), "136");
    groups.weigh("g", |_| 1.5);
    assert_eq!(text(&root, WEIGHT), "150");
    let status = status(&groups);
    assert_eq!((status.weight, status.used_seconds_total), (Some(150), Some(2.5)));
    assert_eq!((status.waited_seconds_total, status.problem), (Some(1.5), None));
}

#[test]
fn in_version_1_usage_is_in_another_hierarchy() {
    let files = [
        ("proc/mounts", "cgroup /c/cpu cgroup rw,cpu 0 0\ncgroup /c/acct cgroup rw,relatime,cpuacct 0 0\n"),
        ("c/cpu/gold/cpu.shares", "1024\n"),
        ("c/acct/gold/cpuacct.usage", "1500000000\n"),
    ];
    let (root, groups) = system(&files, &[told("/gold")]);
    groups.weigh("g", |_| 0.25);
    assert_eq!(text(&root, "c/cpu/gold/cpu.shares"), "256");
    let status = status(&groups);
    assert_eq!((status.used_seconds_total, status.waited_seconds_total), (Some(1.5), None));
}

#[test]
fn the_background_has_an_idle_group_or_where_there_is_no_such_thing_the_least_weight() {
    let (root, groups) = system(V2, &[told("/site/gold")]);
    groups.weigh("g", |_| 0.0);
    assert_eq!((text(&root, WEIGHT), status(&groups).weight), ("1".to_owned(), Some(1)));
    const IDLE: &str = "sys/fs/cgroup/site/gold/cpu.idle";
    let (root, groups) = system(&[V2, &[(IDLE, "0\n")]].concat(), &[told("/site/gold")]);
    groups.weigh("g", |_| 0.0);
    groups.weigh("g", |_| 0.0);
    assert_eq!((text(&root, IDLE), status(&groups).weight), ("1".to_owned(), Some(0)));
    // A reload may take the class out of the background.
    groups.weigh("g", |_| 1.5);
    assert_eq!((text(&root, IDLE), text(&root, WEIGHT)), ("0".to_owned(), "150".to_owned()));
    groups.weigh("g", |_| 0.0);
    groups.give_back();
    assert_eq!((text(&root, IDLE), text(&root, WEIGHT)), ("0".to_owned(), "100".to_owned()));
}

#[test]
fn a_group_has_its_weight_again_at_the_end_and_when_the_key_goes() {
    let (root, groups) = system(V2, &[told("/site/gold")]);
    groups.weigh("g", |_| 1.5);
    groups.follow(&[]);
    assert_eq!(text(&root, WEIGHT), "100");
    groups.follow(&[told("/site/gold")]);
    groups.weigh("g", |_| 1.5);
    groups.give_back();
    assert_eq!(text(&root, WEIGHT), "100");
    groups.weigh("g", |_| 1.5);
    assert_eq!(text(&root, WEIGHT), "100", "it is a successor's");
}

#[test]
fn what_somebody_else_writes_is_given_back_at_the_end_and_is_no_base() {
    let (root, groups) = system(V2, &[told("/site/gold")]);
    groups.weigh("g", |_| 1.5);
    std::fs::write(root.path().join(WEIGHT), "200\n").unwrap();
    groups.weigh("g", |_| 1.5);
    assert_eq!(text(&root, WEIGHT), "150");
    // A gate that finds what a killed one has left has the weight that one would have.
    groups.state.lock().groups[0].unlock();
    let heir = another(&root);
    heir.weigh("g", |_| 1.6);
    assert_eq!(text(&root, WEIGHT), "160");
    std::fs::write(root.path().join(WEIGHT), "50\n").unwrap();
    groups.give_back();
    assert_eq!(text(&root, WEIGHT), "50");
}

#[test]
fn a_group_is_one_gates_until_that_gives_it_back() {
    let (root, first) = system(V2, &[told("/site/gold")]);
    first.weigh("g", |_| 1.5);
    let second = another(&root);
    for _ in 0..2 {
        second.weigh("h", |_| 0.5);
        first.weigh("g", |_| 1.5);
        assert_eq!((text(&root, WEIGHT), status(&first).problem), ("150".to_owned(), None));
    }
    let problem = status(&second).problem.unwrap();
    assert!(problem.contains("another gate sets") && problem.contains("leave `cgroup`"), "{problem}");
    // One that was made again is locked again.
    let (old, new) = (root.path().join("sys/fs/cgroup/site/gold"), root.path().join("old"));
    std::fs::rename(&old, new).unwrap();
    std::fs::create_dir(&old).unwrap();
    std::fs::write(root.path().join(WEIGHT), "100\n").unwrap();
    first.weigh("g", |_| 1.5);
    second.weigh("h", |_| 0.5);
    assert_eq!((text(&root, WEIGHT), status(&second).problem.is_some()), ("150".to_owned(), true));

    first.give_back();
    second.weigh("h", |_| 0.5);
    assert_eq!((text(&root, WEIGHT), status(&second).problem), ("50".to_owned(), None));
}

#[test]
fn a_group_that_comes_later_is_adapted_from_then_on() {
    let (root, groups) = system(&V2[..1], &[told("/site/gold")]);
    groups.weigh("g", |_| 1.5);
    let problem = status(&groups).problem.unwrap();
    assert!(problem.contains("sys/fs/cgroup/site/gold: there is no such control group"), "{problem}");
    std::fs::create_dir_all(root.path().join("sys/fs/cgroup/site/gold")).unwrap();
    groups.weigh("g", |_| 1.5);
    let problem = status(&groups).problem.unwrap();
    assert!(problem.contains("cpu.weight: the controller `cpu` isn't there: write +cpu"), "{problem}");
    std::fs::write(root.path().join(WEIGHT), "100\n").unwrap();
    groups.weigh("g", |_| 1.5);
    assert_eq!((text(&root, WEIGHT), status(&groups).problem), ("150".to_owned(), None));
}

#[test]
fn what_keeps_weights_from_having_an_effect_is_told() {
    let why = |files: &[(&str, &str)]| {
        let (_root, groups) = system(files, &[told("/site/gold")]);
        groups.weigh("g", |_| 1.5);
        status(&groups).problem.unwrap()
    };
    let scheduler = [V2, &[("sys/kernel/sched_ext/state", "enabled\n")]].concat();
    assert!(why(&scheduler).contains("may not heed weights"));
    assert!(why(&[("proc/mounts", "proc /proc proc rw 0 0\n")]).contains("no controller `cpu` is mounted"));
    assert!(why(&[V2, &[(WEIGHT, "max\n")]].concat()).contains("isn't a weight"));
}
