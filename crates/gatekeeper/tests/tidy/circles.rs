//! Circles of imports between the files and folders that stand side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;

/// Where a module stands below its crate's root.
type Place = Vec<String>;
/// Of each folder: which of its entries import which.
type Edges = BTreeMap<Place, BTreeMap<String, BTreeSet<String>>>;

/// Each entry of a folder that imports itself by way of others, as `crate/folder/entry`.
pub(super) fn members(sources: &[(&Path, &str)]) -> Vec<String> {
    let mut crates: BTreeMap<String, BTreeMap<Place, &str>> = BTreeMap::new();
    for (path, text) in sources {
        let name = path.to_string_lossy();
        let Some((root, inner)) = name.strip_suffix(".rs").and_then(|name| name.split_once("/src/")) else {
            continue;
        };
        let mut place: Place = inner.split('/').map(str::to_owned).collect();
        if matches!(place.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            place.pop();
        }
        crates.entry(root.to_owned()).or_default().insert(place, text);
    }
    let mut found = Vec::new();
    for (root, modules) in &crates {
        for (folder, edges) in edges(modules) {
            for entry in edges.keys().filter(|entry| reaches_itself(&edges, entry)) {
                let whole: Vec<_> = std::iter::once(root).chain(&folder).chain([entry]).cloned().collect();
                found.push(whole.join("/"));
            }
        }
    }
    found
}

fn edges(modules: &BTreeMap<Place, &str>) -> Edges {
    let path = beginning_with("crate|super");
    let mut edges = Edges::new();
    for (place, text) in modules.iter().filter(|(place, _)| !place.iter().any(|part| part == "tests")) {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for parts in paths(&path, code) {
            let ups = parts.iter().take_while(|part| *part == "super").count();
            let base = if ups == 0 { &[] } else { &place[..place.len().saturating_sub(ups)] };
            let mut target: Place = base.iter().chain(parts.iter().skip(ups.max(1))).cloned().collect();
            while !target.is_empty() && !modules.contains_key(&target) {
                target.pop();
            }
            let shared = place.iter().zip(&target).take_while(|(one, other)| one == other).count();
            if let (Some(from), Some(to)) = (place.get(shared), target.get(shared)) {
                let folder = edges.entry(place[..shared].to_vec()).or_default();
                folder.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    edges
}

/// What finds the paths whose first part is one of these, with what stands in braces behind them.
pub(super) fn beginning_with(first: &str) -> Regex {
    Regex::new(&format!(r"\b({first})((?:::\w+)*)(?:::\{{([^;]*?)\}}[;,\n])?")).expect("a pattern")
}

/// The paths in a piece of code, each as its parts. Comments don't count.
pub(super) fn paths(path: &Regex, code: &str) -> Vec<Vec<String>> {
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |code, line| code + line + "\n");
    let whole = |found: regex::Captures<'_>| {
        let parts = found[2].split("::").filter(|part| !part.is_empty());
        let outer: Vec<String> = [&found[1]].into_iter().chain(parts).map(str::to_owned).collect();
        let names = names(found.get(3).map(|names| names.as_str()));
        let inner = names.into_iter().map(|name| name.into_iter().map(str::to_owned));
        inner.map(|inner| outer.iter().cloned().chain(inner).collect()).collect::<Vec<_>>()
    };
    path.captures_iter(&code).flat_map(whole).collect()
}

/// The paths within the braces of an import, each as its parts; without braces one that has none.
fn names(braced: Option<&str>) -> Vec<Vec<&str>> {
    let Some(braced) = braced else { return vec![Vec::new()] };
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (index, character) in braced.char_indices().chain([(braced.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 || index == braced.len() => {
                let name = braced[start..index].split('{').next().unwrap_or_default();
                names.push(name.split("::").map(str::trim).filter(|part| !part.is_empty()).collect());
                start = index + 1;
            }
            _ => {}
        }
    }
    names
}

fn reaches_itself(edges: &BTreeMap<String, BTreeSet<String>>, entry: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![entry]);
    while let Some(next) = open.pop() {
        for target in edges.get(next).into_iter().flatten() {
            if target == entry {
                return true;
            }
            if seen.insert(target) {
                open.push(target);
            }
        }
    }
    false
}

#[test]
fn a_circle_is_found_and_an_arrow_is_not() {
    let circle = [
        (Path::new("c/src/lib.rs"), "mod a; mod b; mod d;"),
        (Path::new("c/src/a.rs"), "use crate::{b::{One, Two}, Three};\n"),
        (Path::new("c/src/b.rs"), "use super::d;\n"),
        (Path::new("c/src/d/mod.rs"), "mod e;"),
        (Path::new("c/src/d/e.rs"), "fn f() { super::super::a::g() }"),
        (Path::new("c/src/f.rs"), "use super::a::h;\n#[cfg(test)]\nmod tests {\n    use super::*;\n}"),
    ];
    assert_eq!(members(&circle), ["c/a", "c/b", "c/d"]);
    assert_eq!(members(&circle[..4]), [""; 0]);
}
