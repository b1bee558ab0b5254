//! The running gatekeeper that a command asks: where its admin listener is, and which token it takes.

use std::path::{Path, PathBuf};

use super::run::find;
use crate::Failure;
use crate::cli::AdminArgs;
use crate::remote::Remote;

/// The running gatekeeper that a command names: by a flag or the environment, else by the configuration. Its
/// socket comes first where this user may open it.
///
/// # Errors
/// A configuration that was named and is wrong; a token file that can't be read.
pub(super) fn asked(args: &AdminArgs) -> Result<Remote, Failure> {
    // Not every user may read the gatekeeper's own file.
    place(args, find().ok().filter(|file| std::fs::File::open(file).is_ok()))
}

/// The running gatekeeper that a command names, where `found` is the configuration that `run` would find.
fn place(args: &AdminArgs, found: Option<PathBuf>) -> Result<Remote, Failure> {
    let file = args.config.clone().or(found.filter(|_| args.admin.is_none()));
    let admin = file.as_deref().map_or_else(|| Ok(config::Admin::unless_told()), configured)?;
    let remote = match (&args.admin, &admin.socket, &admin.listen) {
        (Some(address), ..) => Remote::at(address),
        (None, Some(socket), _) if is_open(socket) => Remote::at(&format!("unix:{}", socket.display())),
        (None, _, Some(listen)) => Remote::at(&reachable(listen)),
        (None, Some(socket), None) => Remote::at(&format!("unix:{}", socket.display())),
        (None, None, None) => {
            let file = file.unwrap_or_default();
            return Err(Failure::Usage(format!(
                "{} has no admin listener: give it `listen` or `socket` below [admin], or name another with --admin \
                 ADDR or --config FILE",
                file.display()
            )));
        }
    };
    let is_network = remote.is_network();
    match (&args.token_file, admin.token_file) {
        (Some(file), _) => remote.with_token(file),
        // Others than the gatekeeper's own user may not read it, and may ask all the same.
        (None, Some(file)) if is_network => Ok(remote.clone().with_token(&file).unwrap_or(remote)),
        (None, _) => Ok(remote),
    }
}

fn configured(file: &Path) -> Result<config::Admin, Failure> {
    config::load(file).map(|world| world.admin).map_err(|errors| Failure::Usage(errors.to_string()))
}

/// Whether this user may connect to a socket.
fn is_open(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}

/// Where a listener is reached from this machine: an address that stands for all is none to connect to.
fn reachable(listen: &config::Address) -> String {
    match listen {
        config::Address::Inet { host, port } if host == "0.0.0.0" => format!("127.0.0.1:{port}"),
        config::Address::Inet { host, port } if host == "::" => format!("[::1]:{port}"),
        address => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(args: &AdminArgs, found: Option<&Path>) -> Result<String, String> {
        let place = place(args, found.map(Path::to_owned));
        place.map(|remote| remote.to_string()).map_err(|failure| failure.message().to_owned())
    }

    fn written(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn without_a_file_a_command_asks_where_a_gate_of_flags_alone_has_its_admin_listener() {
        let args = AdminArgs { admin: None, config: None, token_file: None };
        let flags = [("upstream", "127.0.0.1:5432".to_owned())];
        let listen = config::from_flags(&flags, None).unwrap().admin.listen.unwrap();
        assert_eq!(placed(&args, None).unwrap(), listen.to_string());
        assert_eq!(placed(&args, None).unwrap(), "127.0.0.1:6433");
    }

    #[test]
    fn a_flag_comes_before_a_file_that_is_found_and_a_named_file_before_that() {
        let at = |port: u16| {
            written(&format!("[admin]\nlisten = \"127.0.0.1:{port}\"\n[[gate]]\nupstream = \"db:5432\"\n"))
        };
        let (found, named) = (at(1), at(2));
        let args = AdminArgs { admin: None, config: None, token_file: None };
        assert_eq!(placed(&args, Some(found.path())).unwrap(), "127.0.0.1:1");
        let args = AdminArgs { config: Some(named.path().to_owned()), ..args };
        assert_eq!(placed(&args, Some(found.path())).unwrap(), "127.0.0.1:2");
        let args = AdminArgs { admin: Some("127.0.0.1:3".to_owned()), ..args };
        assert_eq!(placed(&args, Some(found.path())).unwrap(), "127.0.0.1:3");
    }

    #[test]
    fn a_file_without_an_admin_listener_is_named_with_what_to_do() {
        let file = written("[admin]\nlisten = \"none\"\n[[gate]]\nupstream = \"db:5432\"\n");
        let args = AdminArgs { admin: None, config: None, token_file: None };
        let said = placed(&args, Some(file.path())).unwrap_err();
        assert!(said.starts_with(&file.path().display().to_string()), "{said}");
        assert!(said.contains("--admin") && said.contains("--config"), "{said}");
    }
}
