//! `gatekeeper users import`: the users file for a gate in front of MySQL or MariaDB.

use std::fs::OpenOptions;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use config::Service;
use proxy::mysql::{Asked, Imported};
use zeroize::Zeroizing;

use crate::Failure;
use crate::assemble::mysql_asked;
use crate::cli::UsersImportArgs;
use crate::remote::block_on;

/// The longest file with a password, in bytes: the longest password, and its line's end.
const PASSWORD_BYTES_MAX: u64 = 4_096;
/// The permissions that nobody but owner and group may have, as of a users file.
const OTHERS: u32 = 0o007;

/// The users file, or what has been written.
pub(crate) fn import_users(args: &UsersImportArgs) -> Result<String, Failure> {
    let asked = asked(args)?;
    if let Some(path) = args.output.as_ref().filter(|path| path.symlink_metadata().is_ok()) {
        return Err(Failure::Usage(there_already(path)));
    }
    let Imported { text, users, left_out } =
        block_on(async { proxy::mysql::import(&asked).await.map_err(Failure::Runtime) })?;
    let Some(path) = &args.output else { return Ok(text) };
    write(path, &text).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::Usage(there_already(path)),
        _ => Failure::Runtime(format!("{}: cannot be written: {error}", path.display())),
    })?;
    let rest = match left_out {
        0 => String::new(),
        1 => " 1 more has a comment there, which says why and what to do.".to_owned(),
        _ => format!(" {left_out} more have comments there, which say why and what to do."),
    };
    let users = if users == 1 { "1 user".to_owned() } else { format!("{users} users") };
    Ok(format!("{} has {users}.{rest}\n", path.display()))
}

fn there_already(path: &Path) -> String {
    format!("{}: is there already, and stays as it is; name another file, or remove it first", path.display())
}

/// Writes a file that wasn't there, and that only its owner may read. Half a file isn't left behind.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| {
        // What is wrong has been found already.
        let _ = std::fs::remove_file(path);
    })
}

/// Where the server is, by the rules of a gate's own flags.
fn asked(args: &UsersImportArgs) -> Result<Asked, Failure> {
    let given = |key, value: &Option<String>| value.as_ref().map(|value| (key, value.clone()));
    let flags: Vec<_> = [
        Some(("protocol", "mysql".to_owned())),
        Some(("upstream", args.upstream.clone())),
        // A gate must have one. This one never starts, so nobody reads it.
        Some(("users_file", "-".to_owned())),
        given("upstream_tls_mode", &args.upstream_tls_mode),
        given("upstream_tls_ca", &args.upstream_tls_ca),
    ]
    .into_iter()
    .flatten()
    .collect();
    let world = config::from_flags(&flags, None).map_err(|errors| Failure::Usage(errors.to_string()))?;
    let password = password(args.password_file.as_deref())?;
    let gate = world.gates.first().and_then(|gate| match &gate.service {
        Service::Mysql(mysql) => Some((gate, mysql)),
        Service::Postgres(_) | Service::Http(_) => None,
    });
    let (gate, mysql) = gate.ok_or_else(|| Failure::Usage("there is no server to ask".to_owned()))?;
    mysql_asked(gate, mysql, (args.user.clone(), password)).map_err(Failure::Usage)
}

/// The password, which never stands in the arguments of the command.
fn password(file: Option<&Path>) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    use std::os::unix::ffi::OsStringExt as _;

    let Some(path) = file else {
        let given = std::env::var_os("MYSQL_PWD").filter(|password| !password.is_empty());
        return Ok(given.map(|password| Zeroizing::new(password.into_vec())));
    };
    let wrong = |why: &str| Failure::Usage(format!("{}: {why}", path.display()));
    let read = if path == Path::new("-") {
        read_password(io::stdin())
    } else {
        let file = std::fs::File::open(path);
        let mode =
            file.as_ref().ok().and_then(|file| Some(file.metadata().ok()?.permissions().mode() & 0o777));
        if let Some(mode) = mode.filter(|mode| mode & OTHERS != 0) {
            return Err(wrong(&format!(
                "holds a password and is open to everybody (mode {mode:03o}); chmod 600 {}",
                path.display()
            )));
        }
        file.and_then(read_password)
    };
    let mut password = read.map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    if password.len() as u64 > PASSWORD_BYTES_MAX {
        return Err(wrong("is too long for a password; write the password alone into it"));
    }
    if password.ends_with(b"\n") {
        password.pop();
    }
    if password.ends_with(b"\r") {
        password.pop();
    }
    if password.contains(&b'\n') {
        return Err(wrong("has several lines; write the password alone into it"));
    }
    Ok(Some(password))
}

fn read_password(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    // As much as it can ever hold: growing would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(PASSWORD_BYTES_MAX as usize + 1));
    from.take(PASSWORD_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
