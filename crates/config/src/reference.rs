//! The keys as a page of documentation. `docs/reference/config.md` is what this generates; a test checks
//! that.

use std::fmt::Write as _;

use crate::raw::{
    ADMIN, CLASS, COMMON, Field, FieldDefault, Form, HTTP, LOG, OWN_TARGET, POSTGRES, PROCESS, ROUTE,
    is_of_laboratory,
};

const HEAD: &str = "\
# Configuration

<!-- Generated from crates/config/src/raw. To write it anew: `UPDATE_REFERENCE=1 cargo test -p config --test reference` -->

One TOML file. `gatekeeper run` looks for it in `./gatekeeper.toml`, `$XDG_CONFIG_HOME/gatekeeper/gatekeeper.toml` (or
`~/.config/gatekeeper/gatekeeper.toml`) and `/etc/gatekeeper/gatekeeper.toml`; `--config FILE` names another. Only
`upstream` is required:

```toml
[[gate]]
upstream = \"127.0.0.1:5432\"
```

or, in front of application servers:

```toml
[[gate]]
protocol = \"http\"
upstream = \"127.0.0.1:8000\"
```

`gatekeeper check FILE` prints what is in force, with every default and everything derived, or every error. Without a file
it looks where `run` looks. Editors complete and check keys by [the schema](config.schema.json). The keys of a gate are also flags of `gatekeeper run`, with `-` for `_`; the admin listener's
address is `--admin`.

Durations are strings with a unit: `\"250ms\"`, `\"1s\"`, `\"2m\"`, `\"1h 30m\"`. Work is written as a duration too: the time
for which a request is expected to occupy the service.

`${NAME}` in a text stands for a variable of the environment, also for a whole number: `connections = \"${POOL}\"`. `$${` stands
for the two characters. Passwords and tokens never stand in the file: keys name the files that hold them, such as
`users_file = \"${CREDENTIALS_DIRECTORY}/users.txt\"`. A reload fills in what the environment of the process has.

On SIGHUP, or `RELOAD` in the console, Gatekeeper reads its file again. If anything in it is wrong nothing changes, and the
log has every error. A key takes its new value then, unless it says *Reload: no*: it keeps its value until a restart, and
the log says so.
";

/// The page of a configuration's keys.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    section(&mut page, "`[admin]`", "The listener for metrics, health and commands.", ADMIN, reload);
    section(&mut page, "`[log]`", "What the process writes to standard error.", LOG, reload);
    section(&mut page, "`[process]`", "Limits of the whole process.", PROCESS, reload);
    section(
        &mut page,
        "`[[gate]]`",
        "One protected service; there may be several, of all protocols.",
        COMMON.iter().filter(|field| !is_of_laboratory(field.key)),
        reload,
    );
    let own = "Below a gate: a type with a target of its own, which takes the place of the gate's for it. At most 1000.";
    section(&mut page, "`[[gate.type]]`", own, OWN_TARGET, reload);
    let postgres = "More keys of a `[[gate]]` with `protocol = \"postgres\"`, which is the default. A gate for MySQL has `pinned_max`, `login_timeout`, `login_failures_max`, `message_timeout`, `users_file`, `auth_user`, `auth_query`, `admin_users` and `stats_users` of them. Any other is refused.";
    section(&mut page, "A gate for PostgreSQL", postgres, POSTGRES, reload);
    let http = "More keys of a `[[gate]]` with `protocol = \"http\"`. Any other gate refuses them.";
    section(&mut page, "A gate for HTTP", http, HTTP, reload);
    let route =
        "Below a gate for HTTP: which requests have a type of this name. There may be several, at most 1000.";
    section(&mut page, "`[[gate.route]]`", route, ROUTE, reload);
    let class = "Below a gate: which requests belong to a service class, and its weight. For a database a request is a transaction, or a statement outside one. At most 64 classes, and 1000 tables.";
    section(&mut page, "`[[gate.class]]`", class, CLASS, reload);
    let laboratory = "Keys of a `[[gate]]` for published methods. They serve to compare with, as in the papers' experiments. A gate that protects a service needs none of them.";
    let fields = COMMON.iter().filter(|field| is_of_laboratory(field.key));
    section(&mut page, "The laboratory", laboratory, fields, reload);
    page
}

/// The longest line of the example's comments.
const EXAMPLE_COLUMNS: usize = 100;
const EXAMPLE_HEAD: &str = "\
# Every key of Gatekeeper, with its default where it has one. Only `upstream` is required.
# `gatekeeper check` says what is wrong, and what holds. docs/reference/config.md says why each default.

";

/// An example of a configuration with every key; all but one are comments.
pub fn example() -> String {
    let mut text = EXAMPLE_HEAD.to_owned();
    let mut table = |head: &str, about: &str, fields: &mut dyn Iterator<Item = &Field>| {
        text += &format!("# {about}\n{head}\n");
        for field in fields {
            text += &commented(field);
        }
        text.push('\n');
    };
    let useful = |fields: &'static [Field]| {
        fields.iter().filter(|field| field.form != Form::Tables && !is_of_laboratory(field.key))
    };
    table("[admin]", "The listener for metrics, health and commands.", &mut useful(ADMIN));
    table("[log]", "What the process writes to standard error.", &mut useful(LOG));
    table("[process]", "What the process may take.", &mut useful(PROCESS));
    table("[[gate]]", "One protected service; there may be several.", &mut useful(COMMON));
    table("", "More keys of a gate for PostgreSQL:", &mut useful(POSTGRES));
    table("", "More keys of a gate for HTTP (protocol = \"http\"):", &mut useful(HTTP));
    table("# [[gate.type]]", "A type with a target of its own.", &mut useful(OWN_TARGET));
    table("# [[gate.route]]", "For HTTP: requests that have a type of this name.", &mut useful(ROUTE));
    table("# [[gate.class]]", "A service class.", &mut useful(CLASS));
    text
}

fn commented(field: &Field) -> String {
    let default = match field.default {
        FieldDefault::Value(value) => Some(value),
        FieldDefault::Each(postgres, ..) => Some(postgres),
        FieldDefault::Derived(_) | FieldDefault::Required => None,
    };
    let sentence = field.doc.split_inclusive(". ").next().unwrap_or(field.doc).trim_end();
    let text = wrapped(&format!("{sentence} Takes {}.", field.takes).replace('`', ""));
    let key = field.key;
    match default {
        _ if key == "upstream" => text + "upstream = \"127.0.0.1:5432\"\n",
        Some(value) => text + &format!("# {key} = {value}\n"),
        None => text + &format!("# {key} =\n"),
    }
}

/// Words in lines of comments.
fn wrapped(words: &str) -> String {
    let (mut text, mut line) = (String::new(), String::from("#"));
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > EXAMPLE_COLUMNS {
            text += &format!("{line}\n");
            line = String::from("#");
        }
        line += &format!(" {word}");
    }
    text + &line + "\n"
}

/// Says of a key that a running gate doesn't take its new value.
fn reload(field: &Field) -> String {
    if field.reloadable { String::new() } else { "- Reload: no\n".to_owned() }
}

/// Adds keys to a page, under a title; `more` writes what else is to be said of each.
pub fn section<'a>(
    page: &mut String,
    title: &str,
    about: &str,
    fields: impl IntoIterator<Item = &'a Field>,
    more: impl Fn(&Field) -> String,
) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "\n## {title}\n\n{about}");
    for field in fields {
        let default = match field.default {
            FieldDefault::Value(value) => format!("`{value}`"),
            FieldDefault::Each(postgres, mysql, http) if postgres == mysql => {
                format!("`{postgres}` for a database, `{http}` for HTTP")
            }
            FieldDefault::Each(postgres, mysql, http) => {
                format!("`{postgres}` for PostgreSQL, `{mysql}` for MySQL, `{http}` for HTTP")
            }
            FieldDefault::Derived(words) => words.to_owned(),
            FieldDefault::Required => "none: required".to_owned(),
        };
        let reason = match field.default {
            FieldDefault::Required => "",
            _ => field.reason,
        };
        let default = format!("{default}. {reason}");
        let _ = write!(
            page,
            "\n### `{}`\n\n{}\n\n- Takes: {}\n- Default: {}\n{}",
            field.key,
            field.doc,
            field.takes,
            default.trim_end(),
            more(field)
        );
    }
}
