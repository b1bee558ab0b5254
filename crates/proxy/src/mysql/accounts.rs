//! The accounts of a server as lines of a users file: `gatekeeper users import`.
//!
//! Each user with a hash that the gate can check gets its line. Any other user gets a comment, which says
//! why there is no line, and what to do. A user without a password gets no line either: at the server only
//! some hosts may log in as that user, at the gate every client could. What the server itself refuses (a
//! locked account, a login without TLS) is told in a comment beside the line: clients hear its answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use wire::mysql::capabilities::Capabilities;
use wire::mysql::handshake::{Greeting, MAX_HANDSHAKE, parse_greeting};
use wire::mysql::salted::Salted;
use wire::mysql::scramble::{caching_sha2, native};
use wire::mysql::table::parse_row;
use zeroize::Zeroizing;

use super::channel::{Channel, Lost};
use super::greeting::{Failed, UTF8MB4, Way, refused, unreachable};
use super::place::Place;
use super::server::{Key, Reached, Server};
use super::users::Credential;
use crate::sql::users_file::FILE_BYTES_MAX;
use crate::stream::Keepalive;
use crate::tls;
use crate::upstream::address::Address;
use crate::upstream::dial::Dial;
use crate::upstream::resolver::Lookup;

/// What a server keeps of each account, words of [`NOTES`], and the tables: of MariaDB, of MySQL, and of
/// MariaDB for those who may not read `mysql.global_priv`. MariaDB before 10.4 has the hashes of
/// `mysql_native_password` in a column of their own.
const QUERIES: [[&str; 3]; 3] = [
    [
        "IF(authentication_string = '', password, authentication_string)",
        "IF(JSON_EXTRACT(priv, '$.account_locked') = 'true', 'locked', ''), \
         IF(password_expired = 'Y' OR JSON_VALUE(priv, '$.password_last_changed') + 86400 * NULLIF(COALESCE( \
         NULLIF(JSON_VALUE(priv, '$.password_lifetime'), -1), @@default_password_lifetime), 0) \
         < UNIX_TIMESTAMP(), 'expired', '')",
        "mysql.user JOIN mysql.global_priv USING (user, host)",
    ],
    [
        "authentication_string",
        "IF(account_locked = 'Y', 'locked', ''), \
         IF(password_expired = 'Y' OR TIMESTAMPDIFF(DAY, password_last_changed, NOW()) >= NULLIF(COALESCE( \
         password_lifetime, @@default_password_lifetime), 0), 'expired', '')",
        "mysql.user",
    ],
    [
        "IF(authentication_string = '', password, authentication_string)",
        "IF(password_expired = 'Y', 'expired', '')",
        "mysql.user",
    ],
];
/// The word for what an account asks of TLS.
const TLS: &str =
    "IF(ssl_type = 'SPECIFIED', IF(CONCAT(x509_issuer, x509_subject) = '', 'CIPHER', 'X509'), ssl_type)";
/// What the server asks of an account beside its password, or refuses: the word for it, and what to do.
const NOTES: [(&str, &str); 5] = [
    ("locked", "is locked: the server lets nobody in before ALTER USER … ACCOUNT UNLOCK."),
    (
        "expired",
        "has a password that has expired: logins through the gate fail. Give it another there (ALTER USER … \
         IDENTIFIED BY …), and import again.",
    ),
    ("ANY", "takes TLS only: the gate needs upstream_tls_mode."),
    (
        "CIPHER",
        "takes TLS with one cipher only: the gate needs upstream_tls_mode, and the server has to choose it.",
    ),
    (
        "X509",
        "asks for a client's certificate, and the gate has none to show: logins fail. Let it REQUIRE SSL instead, and \
         set upstream_tls_mode.",
    ),
];
/// The longest that the whole may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Accounts of the server's own, with which nobody logs in.
const OWN: [&str; 4] = ["mariadb.sys", "mysql.infoschema", "mysql.session", "mysql.sys"];
/// Plug-ins that prove a password, but whose hashes only the server can use.
const OF_PASSWORDS: [&str; 3] = ["ed25519", "sha256_password", "parsec"];
/// What a server says to a user that may not read the accounts, and to one that it doesn't let in.
const NOT_READABLE: [u16; 3] = [1044, 1142, 1143];
const NOT_LET_IN: [u16; 2] = [1045, 1698];

const HEAD: &str = "\
; Users of a server, by `gatekeeper users import`. A hash lets nobody in by itself, but can be guessed
; at: keep the file to its owner (chmod 600). The server sees clients at the gate's address.
";

/// Where a server is, and the user that asks it.
pub struct Asked {
    /// The server.
    pub upstream: Address,
    /// TLS towards it.
    pub tls: Option<Arc<tls::Connector>>,
    /// The longest that connecting may take.
    pub connect_timeout: Duration,
    /// The user that asks, who may read `mysql.user`.
    pub user: String,
    /// The user's password, if it has one.
    pub password: Option<Zeroizing<Vec<u8>>>,
}

/// The users of a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// A users file.
    pub text: String,
    /// How many users it has.
    pub users: usize,
    /// How many have only a comment.
    pub left_out: usize,
}

/// An account.
struct Account {
    user: String,
    host: String,
    plugin: String,
    kept: Zeroizing<String>,
    /// Words of [`NOTES`].
    notes: String,
}

/// Why an account has no line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lack {
    /// It has no password.
    Password,
    /// Its text is no hash.
    Hash,
    /// Its plug-in takes a password, which the file can have.
    Clear(String),
    /// Its plug-in takes something else.
    Plugin(String),
}

/// Asks a server for its accounts.
///
/// # Errors
/// Why the server can't be asked, and what to do.
pub async fn import(asked: &Asked) -> Result<Imported, String> {
    let told = timeout(LIMIT, ask(asked)).await.unwrap_or(Err(Failed::Lost(Lost::Late)));
    let accounts = told.map_err(|failed| {
        let refusal = failed.into_refusal();
        let is_local = matches!(asked.upstream, Address::Unix(_));
        let hint = match refusal.code() {
            code if NOT_READABLE.contains(&code) => {
                "; GRANT SELECT ON mysql.user to it, or name another account by --user"
            }
            code if !NOT_LET_IN.contains(&code) => "",
            _ if asked.password.is_none() && is_local => {
                "; no password was given: name its file by --password-file, or run the command as the system's user \
                 of this name, if the account has unix_socket"
            }
            _ if asked.password.is_none() => {
                "; no password was given: name its file by --password-file, or ask over the server's socket: \
                 --upstream unix:/PATH"
            }
            _ if is_local => "; see that the password is that of the account, and that it may log in from localhost",
            _ => {
                "; see that the password is that of the account, and that it may log in from here: some may only over \
                 the server's socket (--upstream unix:/PATH)"
            }
        };
        let (Asked { upstream, user, .. }, why) = (asked, shown(&refusal.message()));
        format!("cannot read the accounts of {upstream} as {user:?}: {why}{hint}")
    })?;
    fitting(written(&accounts), FILE_BYTES_MAX)
}

/// A users file that a gate reads.
fn fitting(imported: Imported, most: u64) -> Result<Imported, String> {
    if imported.text.len() as u64 <= most {
        return Ok(imported);
    }
    let bytes = imported.text.len();
    Err(format!(
        "the users file would take {bytes} bytes, and a gate reads {most} at most; have the gate ask the server \
         for its users instead (auth_user)"
    ))
}

async fn ask(asked: &Asked) -> Result<Vec<Account>, Failed> {
    let credential = match &asked.password {
        Some(password) => Credential::Password(password.clone()),
        None => Credential::Nothing,
    };
    let names = (&Lookup::default(), Duration::ZERO);
    let dial = Dial::new(asked.upstream.clone(), names, asked.connect_timeout, Keepalive::default());
    let way = Way { dial: Arc::new(dial), peer: None };
    let stream = way.dial.connect(way.dial.deadline()).await.map_err(|error| unreachable(&error))?;
    let mut channel = Channel::new(stream);
    let first = channel.server_message(MAX_HANDSHAKE).await?.payload;
    let Greeting::Handshake(handshake) = parse_greeting(&first)? else { return Err(refused(&first)) };
    let key =
        Key { user: asked.user.clone().into_bytes(), layout: Capabilities(0), collation: u16::from(UTF8MB4) };
    let (tls, needed) = (asked.tls.as_deref(), Capabilities(0));
    let reached = Reached { way: &way, tls, channel, handshake: &handshake, needed };
    let mut server = Server::enter(reached, &key, &credential, Place::beside()).await?;
    let mut told = Ok(Vec::new());
    for [kept, notes, tables] in QUERIES {
        let sql = format!(
            "SELECT user, host, plugin, {kept}, CONCAT_WS(' ', {notes}, {TLS}) FROM {tables} ORDER BY user, host"
        );
        told = accounts(&mut server, &sql).await;
        if !matches!(told, Err(Failed::Refused(_))) {
            break;
        }
    }
    told
}

async fn accounts(server: &mut Server, sql: &str) -> Result<Vec<Account>, Failed> {
    let (mut accounts, mut bytes, mut rows) = (Vec::new(), 0_u64, 0);
    server
        .rows(sql, |count, row| {
            bytes += row.len() as u64;
            rows += 1;
            let Ok(values) = parse_row(row, count) else { return };
            if let ([user, host, plugin, kept, notes], true) = (values.as_slice(), bytes <= FILE_BYTES_MAX) {
                let text =
                    |value: &Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
                let (user, host, plugin) = (text(user), text(host), text(plugin));
                let (kept, notes) = (Zeroizing::new(text(kept)), text(notes));
                accounts.push(Account { user, host, plugin, kept, notes });
            }
        })
        .await?;
    if bytes > FILE_BYTES_MAX {
        return Err(unreachable(&format!("its accounts take more than {FILE_BYTES_MAX} bytes")));
    }
    // The account that asks is one.
    if accounts.len() != rows || rows == 0 {
        return Err(unreachable(
            &"it tells accounts that can't be read: it isn't a server of MySQL or MariaDB",
        ));
    }
    Ok(accounts)
}

impl Account {
    /// The secret as a users file has it.
    fn secret(&self) -> Result<String, Lack> {
        let plugin = self.plugin.as_str();
        if OF_PASSWORDS.contains(&plugin) {
            return Err(Lack::Clear(plugin.to_owned()));
        }
        if !["", native::NAME, caching_sha2::NAME].contains(&plugin) {
            return Err(Lack::Plugin(plugin.escape_debug().to_string()));
        }
        let kept = self.kept.as_str();
        match Salted::parse(kept) {
            _ if kept.is_empty() => Err(Lack::Password),
            _ if native::parse_kept(kept).is_some() => Ok(kept.to_owned()),
            // A salt may hold any character, so the digits stand for all.
            Some(salted) => Ok(salted.to_hexadecimal()),
            None => Err(Lack::Hash),
        }
    }
}

/// The users file, users in the order of their names.
fn written(accounts: &[Account]) -> Imported {
    let mut by_user: BTreeMap<&str, Vec<&Account>> = BTreeMap::new();
    // A role has no host.
    let with_host = accounts.iter().filter(|it| !it.host.is_empty());
    for account in with_host.filter(|it| !OWN.contains(&it.user.as_str())) {
        by_user.entry(&account.user).or_default().push(account);
    }
    let mut all = Imported { text: HEAD.to_owned(), ..Imported::default() };
    for (user, accounts) in &by_user {
        let is_in = put_user(&mut all.text, user, accounts);
        *(if is_in { &mut all.users } else { &mut all.left_out }) += 1;
    }
    for Account { host, .. } in by_user.get("").into_iter().flatten().filter(|it| it.host != "%") {
        // The server looks for the host first, and for the name only among the accounts of the host.
        let is_hidden = |hosts: &[&Account]| {
            hosts.iter().any(|it| it.host == "%") && hosts.iter().all(|it| it.host != *host)
        };
        if let Some((user, _)) = by_user.iter().find(|(_, accounts)| is_hidden(accounts)) {
            let (user, host) = (shown(user), host.escape_debug());
            all.text.push_str(&format!(
                "; From {host} the server takes \"{user}\" for the account without a name, and refuses the password: DROP \
                 USER ''@'{host}'.\n"
            ));
        }
    }
    all
}

/// A server's text as a terminal may have it.
fn shown(text: &str) -> String {
    text.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// Appends what there is to say of a user. Returns whether that is a line.
fn put_user(out: &mut String, user: &str, accounts: &[&Account]) -> bool {
    let name = format!("\"{}\"", user.replace('"', "\"\""));
    let shown = shown(&name);
    let hosts = accounts.iter().map(|account| account.host.escape_debug().to_string());
    let hosts = hosts.collect::<Vec<_>>().join(", ");
    let mut secrets: Vec<_> = accounts.iter().map(|account| account.secret()).collect();
    secrets.dedup();
    let mut put = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    if user.is_empty() {
        put(format!("; An account without a name ({hosts}): the gate lets in users with a name only."));
        return false;
    }
    // What a terminal wouldn't show as it is, `escape_debug` shows in another way.
    let is_shown = |letter: char| matches!(letter, '"' | '\'' | '\\') || letter.escape_debug().count() == 1;
    if !user.chars().all(|letter| is_shown(letter) && letter != char::REPLACEMENT_CHARACTER) {
        put(format!("; {shown} ({hosts}) can't stand in a line: give the account another name."));
        return false;
    }
    for (word, note) in NOTES {
        let noted = accounts.iter().filter(|it| it.notes.split(' ').any(|other| other == word));
        let hosts: Vec<_> = noted.map(|account| account.host.escape_debug().to_string()).collect();
        if !hosts.is_empty() {
            put(format!("; {shown} ({}) {note}", hosts.join(", ")));
        }
    }
    match secrets.as_slice() {
        [Ok(secret)] => {
            if !accounts.iter().any(|account| account.host == "%") {
                put(format!("; {shown} may come from {hosts} only, which must be the gate."));
            }
            put(format!("{name} \"{secret}\""));
            return true;
        }
        [Err(Lack::Password)] => {
            put(format!(
                "; {shown} ({hosts}) has no password. To let everybody in so, remove the semicolon:"
            ));
            put(format!("; {name} \"\""));
        }
        [Err(Lack::Hash)] => put(format!(
            "; {shown} ({hosts}) is closed: no password fits what the server keeps. Give it a password there."
        )),
        [Err(Lack::Clear(plugin))] => {
            put(format!("; {shown} ({hosts}) has {plugin}, so the file needs the password itself:"));
            put(format!("; {name} \"the password\""));
        }
        [Err(Lack::Plugin(plugin))] => put(format!(
            "; {shown} ({hosts}) has {plugin}, which no gate can prove. Have it use mysql_native_password or \
             caching_sha2_password."
        )),
        _ => {
            put(format!(
                "; {shown} has accounts that differ ({hosts}). The server takes the one for the gate's"
            ));
            put("; address: remove the semicolon of that one.".to_owned());
            for account in accounts {
                let (host, secret) = (account.host.escape_debug(), account.secret());
                let secret = secret.unwrap_or_else(|lack| lack.stand_in().to_owned());
                put(format!("; of {host}:"));
                put(format!("; {name} \"{secret}\""));
            }
        }
    }
    false
}

impl Lack {
    /// What stands in the secret's place.
    const fn stand_in(&self) -> &'static str {
        match self {
            Self::Password => "",
            Self::Hash | Self::Clear(_) | Self::Plugin(_) => "the password",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NATIVE: &str = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";

    fn account([user, host, plugin, kept]: [&str; 4]) -> Account {
        let [user, host, plugin, kept] = [user, host, plugin, kept].map(str::to_owned);
        Account { user, host, plugin, kept: Zeroizing::new(kept), notes: String::new() }
    }

    fn lines(accounts: &[[&str; 4]]) -> (Vec<String>, usize, usize) {
        let Imported { text, users, left_out } =
            written(&accounts.iter().copied().map(account).collect::<Vec<_>>());
        (text.strip_prefix(HEAD).unwrap().lines().map(str::to_owned).collect(), users, left_out)
    }

    #[test]
    fn users_with_a_hash_have_a_line() {
        let salted = format!("$A$005${}{}", "ab\n\"efghijklmnopqrst", "x".repeat(43));
        let digits = Salted::parse(&salted).unwrap().to_hexadecimal();
        let told = lines(&[
            ["a\"b", "%", native::NAME, NATIVE],
            ["both", "%", "", NATIVE],
            ["both", "localhost", native::NAME, NATIVE],
            ["mysql.sys", "localhost", caching_sha2::NAME, &salted],
            ["near", "10.0.0.%", native::NAME, NATIVE],
            ["new", "%", caching_sha2::NAME, &salted],
            ["role", "", "", ""],
        ]);
        let wanted = [
            format!("\"a\"\"b\" \"{NATIVE}\""),
            format!("\"both\" \"{NATIVE}\""),
            "; \"near\" may come from 10.0.0.% only, which must be the gate.".to_owned(),
            format!("\"near\" \"{NATIVE}\""),
            format!("\"new\" \"{digits}\""),
        ];
        assert_eq!(told, (wanted.to_vec(), 4, 0));
    }

    #[test]
    fn other_users_have_a_comment_with_the_reason_and_what_to_do() {
        for (accounts, reason, remedy) in [
            (vec![["", "localhost", "", ""]], "without a name", "with a name only"),
            (vec![["closed", "%", native::NAME, "invalid"]], "is closed", "Give it a password"),
            (vec![["open", "%", caching_sha2::NAME, ""]], "has no password", "\n; \"open\" \"\""),
            (vec![["signer", "%", "ed25519", "x"]], "has ed25519", "\n; \"signer\" \"the password\""),
            (vec![["local", "localhost", "unix_socket", ""]], "has unix_socket", "mysql_native_password"),
            (vec![["li\nne", "%", native::NAME, NATIVE]], "\"li\\nne\" (%) can't stand", "another name"),
            (vec![["e\u{1b}[2J", "%", native::NAME, NATIVE]], "\"e\\u{1b}[2J\" (%) can't", "another name"),
            (vec![["a\u{202e}", "%", native::NAME, NATIVE]], "can't stand", "another name"),
            (
                vec![["two", "%", native::NAME, NATIVE], ["two", "localhost", native::NAME, ""]],
                "accounts that differ (%, localhost)",
                "\n; of localhost:\n; \"two\" \"\"",
            ),
        ] {
            let (told, users, left_out) = lines(&accounts);
            assert!(told.iter().all(|line| line.starts_with("; ")), "{told:?}");
            let told = told.join("\n");
            assert!(told.contains(reason) && told.contains(remedy), "{told}");
            assert_eq!((users, left_out), (0, 1));
        }
    }

    #[test]
    fn a_file_that_no_gate_reads_is_not_made() {
        let accounts = [account(["ann", "%", native::NAME, NATIVE])];
        let bytes = written(&accounts).text.len() as u64;
        assert!(fitting(written(&accounts), bytes).is_ok());
        let told = fitting(written(&accounts), bytes - 1).unwrap_err();
        assert!(told.contains("auth_user") && told.contains(&bytes.to_string()), "{told}");
    }

    #[test]
    fn a_nameless_account_is_told_of_that_hides_others() {
        let nameless = ["", "localhost", "", ""];
        let told = |others: &[&str]| {
            let others = others.iter().map(|host| ["ann", *host, native::NAME, NATIVE]);
            lines(&std::iter::once(nameless).chain(others).collect::<Vec<_>>()).0.join("\n")
        };
        for (others, is_hidden) in
            [(&["%"][..], true), (&["%", "10.%"], true), (&["%", "localhost"], false), (&["10.%"], false)]
        {
            let told = told(others);
            assert_eq!(told.contains("takes \"ann\" for the account without a name"), is_hidden, "{told}");
            assert_eq!(told.contains("DROP USER ''@'localhost'"), is_hidden, "{told}");
        }
    }
}
