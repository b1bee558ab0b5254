//! The sessions of clients: a Markov chain over the types, written with their names.

use std::path::Path;

use config::reader::{self, Complaint, hint_for_unknown};
use sim::{Distribution, Sessions};
use toml::de::{DeTable, DeValue};

use super::{distribution, read_file};

const KEYS: [&str; 4] = ["first", "lasts", "next", "stays"];

/// Reads the sessions, from a file of their own (relative to `directory`) if one is named. `names`: of all
/// types.
pub(super) fn read(value: &DeValue<'_>, names: &[&str], directory: &Path) -> Result<Sessions, Complaint> {
    let DeValue::String(file) = value else { return table(value, names) };
    let text = read_file(&directory.join(&**file), config::FILE_BYTES_MAX)
        .map_err(|complaint| Complaint::new(format!("{file} {}", complaint.why)))?;
    let document = DeTable::parse(&text)
        .map_err(|error| Complaint::new(format!("{file} isn't TOML: {}", error.message())))?;
    table(&DeValue::Table(document.into_inner()), names)
        .map_err(|complaint| Complaint { why: format!("{file} {}", complaint.why), ..complaint })
}

fn table(value: &DeValue<'_>, names: &[&str]) -> Result<Sessions, Complaint> {
    let form = "write such as { first = \"home\", next = { home = { search = 1 }, search = { home = 1 } } }";
    let wrong = |why: &str| Complaint::new(why).hint(form);
    let DeValue::Table(table) = value else { return Err(wrong("isn't a table")) };
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&&**key.get_ref())) {
        let hint = hint_for_unknown(key.get_ref(), &KEYS);
        return Err(Complaint { hint, ..Complaint::new(format!("has no key {:?}", key.get_ref())) });
    }
    let given = |key: &str| table.get(key).map(toml::Spanned::get_ref);
    let first = reader::text(given("first").ok_or_else(|| wrong("doesn't say which type is `first`"))?)?;
    let lasts: Option<Distribution> = given("lasts").map(distribution::read).transpose()?;
    let stays = given("stays").map(reader::boolean).transpose()?.unwrap_or_default();
    let Some(DeValue::Table(followers)) = given("next") else {
        return Err(wrong("doesn't say which types come `next`"));
    };
    let mut next = vec![Vec::new(); names.len()];
    for (name, weights) in followers {
        next[index(name.get_ref(), names)?] = shares(weights.get_ref(), names)?;
    }
    let first = index(&first, names)? as u32;
    finish(&mut next, names, followers)?;
    Ok(Sessions { first, next, lasts, stays })
}

/// A type that nothing leads to need not say what follows it; one that is led to must.
fn finish(next: &mut [Vec<f64>], names: &[&str], followers: &DeTable<'_>) -> Result<(), Complaint> {
    for at in 0..names.len() {
        let is_reached = next.iter().any(|weights| weights.get(at).is_some_and(|weight| *weight > 0.0));
        if next[at].is_empty() && is_reached {
            let why = format!("leads to {:?}, but doesn't say what comes next after it", names[at]);
            return Err(Complaint::new(why));
        }
    }
    if followers.is_empty() {
        return Err(Complaint::new("says of no type what comes next"));
    }
    // Never drawn from; but a chain has a row for each type.
    for weights in next.iter_mut().filter(|weights| weights.is_empty()) {
        *weights = vec![1.0; names.len()];
    }
    Ok(())
}

fn shares(value: &DeValue<'_>, names: &[&str]) -> Result<Vec<f64>, Complaint> {
    let mut shares = vec![0.0; names.len()];
    for (name, weight) in reader::weights(value)? {
        shares[index(&name, names)?] = weight;
    }
    Ok(shares)
}

fn index(name: &str, names: &[&str]) -> Result<usize, Complaint> {
    names.iter().position(|known| *known == name).ok_or_else(|| Complaint {
        hint: hint_for_unknown(name, names),
        ..Complaint::new(format!("names the type {name:?}, which isn't there"))
    })
}
