//! The running gatekeeper that a command asks: where its admin listener is, and which token it takes.

use std::path::Path;

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
    let admin = match (&args.config, &args.admin) {
        (Some(file), _) => configured(file)?,
        (None, Some(_)) => config::Admin::default(),
        // Not everybody may read the gatekeeper's own file.
        (None, None) => match find().ok().filter(|file| std::fs::File::open(file).is_ok()) {
            Some(file) => configured(&file)?,
            None => config::Admin::default(),
        },
    };
    let remote = match (&args.admin, &admin.socket, &admin.listen) {
        (Some(address), ..) => Remote::at(address),
        (None, Some(socket), _) if is_open(socket) => Remote::at(&format!("unix:{}", socket.display())),
        (None, _, Some(listen)) => Remote::at(&reachable(listen)),
        (None, Some(socket), None) => Remote::at(&format!("unix:{}", socket.display())),
        (None, None, None) => {
            return Err(Failure::Usage("the configuration has no admin listener".into()));
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
