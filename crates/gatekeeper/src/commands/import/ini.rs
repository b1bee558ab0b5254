//! PgBouncer's file: sections of `key = value`, and connection strings of databases.

use super::{Pairs, one_line};

/// A file as it is written.
#[derive(Debug, Default)]
pub(super) struct Ini {
    pub(super) databases: Vec<Database>,
    /// `[pgbouncer]`.
    pub(super) settings: Pairs,
    /// What couldn't be carried over from elsewhere in the file.
    pub(super) remarks: Vec<String>,
}

/// A line of `[databases]`.
#[derive(Debug, Default)]
pub(super) struct Database {
    pub(super) name: String,
    pub(super) parameters: Pairs,
}

impl Ini {
    /// # Errors
    /// The line that is no line of such a file.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut ini = Self::default();
        let mut section = String::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            let wrong = |why: &str| format!("line {number}: {why}");
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(file) = line.strip_prefix("%include") {
                let file = one_line(file.trim());
                ini.remarks.push(format!("%include {file}: import that file, too, and write both together."));
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let name = name
                    .strip_suffix(']')
                    .ok_or_else(|| wrong("a section begins without an end: write [name]"))?;
                section = name.trim().to_lowercase();
                continue;
            }
            let (key, value) =
                line.split_once('=').ok_or_else(|| wrong("is neither `key = value` nor [section]"))?;
            let (key, value) = (key.trim(), value.trim());
            match section.as_str() {
                "databases" => {
                    let parameters = parameters(value).map_err(|why| wrong(&why))?;
                    for (key, value) in &parameters {
                        check_number(key, value).map_err(|why| wrong(&why))?;
                    }
                    let name = one_line(key.trim_matches('"'));
                    ini.databases.push(Database { name, parameters });
                }
                "pgbouncer" => {
                    let key = key.to_lowercase();
                    check_number(&key, value).map_err(|why| wrong(&why))?;
                    ini.settings.insert(key, value.to_owned());
                }
                "users" => {
                    let (key, value) = (one_line(key), one_line(value));
                    ini.remarks.push(format!(
                        "[users] {key} = {value}: no settings for one user; ALTER ROLE … CONNECTION LIMIT bounds its connections, user_clients_max the clients of every user."
                    ));
                }
                "peers" => {
                    ini.remarks.push(format!(
                        "[peers] {}: not needed: a gate knows its own cancel keys.",
                        one_line(key)
                    ));
                }
                "" => return Err(wrong("stands before the first [section]; is this a pgbouncer.ini?")),
                other => return Err(wrong(&format!("PgBouncer has no section [{}]", one_line(other)))),
            }
        }
        Ok(ini)
    }
}

/// The parameters of a connection string: `key=value` or `key='va lue'`, with `''` for a quote.
fn parameters(text: &str) -> Result<Pairs, String> {
    let mut pairs = Pairs::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or("a database takes `key=value` pairs")?;
        let after = after.trim_start();
        let (value, left) = match after.strip_prefix('\'') {
            Some(quoted) => quoted_value(quoted).ok_or("a quoted value has no end")?,
            None => {
                let end = after.find(char::is_whitespace).unwrap_or(after.len());
                (after[..end].to_owned(), &after[end..])
            }
        };
        pairs.insert(key.trim().to_lowercase(), value);
        rest = left.trim_start();
    }
    Ok(pairs)
}

/// A number that decides a gate's address or its connections is one that PgBouncer takes.
fn check_number(key: &str, value: &str) -> Result<(), String> {
    let most = match key {
        "port" | "listen_port" => u16::MAX.into(),
        "pool_size" | "default_pool_size" | "max_db_connections" => i32::MAX.unsigned_abs(),
        _ => return Ok(()),
    };
    let is_one = value.trim().parse::<u32>().is_ok_and(|number| number <= most);
    if is_one { Ok(()) } else { Err(format!("{key} = {}: write a number from 0 to {most}", one_line(value))) }
}

fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('\'')?;
        value += before;
        match after.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return Some((value, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_are_read_as_pgbouncer_reads_them() {
        let read = parameters("host=a port = 5 connect_query='SELECT ''x''' password='' user=u").unwrap();
        let told: Vec<_> = read.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        assert_eq!(told, ["connect_query:SELECT 'x'", "host:a", "password:", "port:5", "user:u"]);
        assert!(parameters("host='a").is_err() && parameters("host").is_err());
    }

    #[test]
    fn what_is_no_such_file_is_told_with_its_line() {
        let told = |text: &str| Ini::parse(text).unwrap_err();
        assert_eq!(told("a = 1"), "line 1: stands before the first [section]; is this a pgbouncer.ini?");
        assert_eq!(told("; c\n[pgbouncer]\nnonsense"), "line 3: is neither `key = value` nor [section]");
        let port = "line 2: port = -1: write a number from 0 to 65535";
        assert_eq!(told("[databases]\nshop = host=a port=-1"), port);
        assert!(
            told("[pgbouncer]\ndefault_pool_size = 99999999999").starts_with("line 2: default_pool_size")
        );
        assert_eq!(told("[gate]\na = 1"), "line 2: PgBouncer has no section [gate]");
    }
}
