//! Documents: each link between them leads to a file that is there and to a heading that the file has, and a
//! page of results stays short.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// The longest page of results, in lines.
const RESULT_LINES: usize = 80;
/// Pages of results that are no answer to one question: the index, and what `make catalogue` writes.
const LONG_RESULTS: [&str; 2] = ["README.md", "catalogue.md"];

#[test]
fn every_link_between_documents_leads_somewhere() {
    super::check(|path, text| {
        if !is_markdown(path) {
            return Vec::new();
        }
        let broken = |link: &str| {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = path.parent().unwrap_or(Path::new(""));
            let target = if file.is_empty() { path.to_owned() } else { without_dots(&folder.join(file)) };
            let on_disk = super::repository().join(&target);
            if !on_disk.exists() {
                return Some(format!("({link}) leads to no file"));
            }
            if heading.is_empty() || !is_markdown(&target) {
                return None;
            }
            let there = std::fs::read_to_string(on_disk).expect("a document is UTF-8");
            (!anchors(&there).contains(heading)).then(|| format!("({link}) leads to no heading"))
        };
        links(text).into_iter().filter_map(broken).collect()
    });
}

#[test]
fn a_page_of_results_answers_one_question_on_one_page() {
    super::check(|path, text| {
        let is_long = path.file_name().is_some_and(|name| LONG_RESULTS.iter().any(|known| name == *known));
        let count = text.lines().count();
        if is_markdown(path) && path.starts_with("docs/results") && !is_long && count > RESULT_LINES {
            vec![format!("{count} lines, at most {RESULT_LINES}")]
        } else {
            Vec::new()
        }
    });
}

#[test]
fn anchors_and_links_are_those_of_a_renderer() {
    let text = "# A `target`, held: ± 10 %\n```\n# no heading\n[no](link.md)\n```\n## Why\n## Why\n[a](b.md#c) [d](https://e.f)\n";
    let expected = ["a-target-held--10-", "why", "why-1"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
    assert_eq!(links(text), ["b.md#c"]);
    assert_eq!(without_dots(Path::new("docs/guide/../results/a.md")), Path::new("docs/results/a.md"));
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of links to other files and to headings.
fn links(text: &str) -> Vec<&str> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains(':') && !target.contains(' ')).collect()
}

/// The anchors of a document's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|&letter| letter.is_alphanumeric() || "-_ ".contains(letter));
        let anchor = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect::<String>();
        let others = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(others).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// A path without its steps up.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}
