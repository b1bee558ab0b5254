//! Libraries that limit how many requests are in flight by how long they take, each in a small reverse
//! proxy of its own language (`crates/bench/peers`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use testbed::process::free_port;

use super::web::Server;
use crate::Error;

/// Memory of Java's virtual machine; its default is a quarter of the computer's.
const JAVA: [&str; 4] = [
    "-Xmx512m",
    // Without it an answer waits for forty milliseconds for the client's acknowledgment …
    "-Dsun.net.httpserver.nodelay=true",
    // … and of more than 200 idle connections each is closed.
    "-Dsun.net.httpserver.maxIdleConnections=10000",
    // As many connections to the service are kept as there are requests in flight.
    "-Djdk.httpclient.connectionPoolSize=0",
];

/// A library that limits requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// In Rust, on hyper and tower.
    LittleLoadshedder,
    /// In Go, on its own server and reverse proxy.
    FailsafeGo,
    /// In Java, on the development kit's server and client.
    ConcurrencyLimits,
}

impl Library {
    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::LittleLoadshedder, Self::FailsafeGo, Self::ConcurrencyLimits];
        all.into_iter().find(|library| library.name() == name)
    }

    /// The library's name, here and below the build directory.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LittleLoadshedder => "little-loadshedder",
            Self::FailsafeGo => "failsafe-go",
            Self::ConcurrencyLimits => "concurrency-limits",
        }
    }

    /// The version that `scripts/setup peers` builds with.
    pub(crate) const fn version(self) -> &'static str {
        match self {
            Self::LittleLoadshedder => "0.2.0",
            Self::FailsafeGo => "0.9.8",
            Self::ConcurrencyLimits => "0.5.4",
        }
    }

    /// Below the build directory, beside this program or the directory of a test.
    fn built(self) -> Result<PathBuf, Error> {
        let own = std::env::current_exe().map_err(Error::io("finding this program"))?;
        let place = PathBuf::from("peers").join(self.name());
        own.ancestors()
            .skip(1)
            .take(3)
            .map(|directory| directory.join(&place))
            .find(|path| path.exists())
            .ok_or_else(|| {
                testbed::Error::Missing(format!(
                    "the peer {} is not built ({} is not beside {}); run `scripts/setup peers`",
                    self.name(),
                    place.display(),
                    own.display()
                ))
                .into()
            })
    }

    fn command(self) -> Result<Command, Error> {
        let built = self.built()?;
        if self != Self::ConcurrencyLimits {
            return Ok(Command::new(built));
        }
        let mut command = Command::new("java");
        let directory = built.display();
        command.args(JAVA).arg("-cp").arg(format!("{directory}/classes:{directory}/jars/*")).arg("Proxy");
        Ok(command)
    }
}

/// A reverse proxy with one of the libraries.
#[derive(Debug)]
pub(crate) struct Limiter(Server);

impl Limiter {
    /// Starts a proxy before an origin at this port, with these options beside the ports.
    pub(crate) fn start(
        library: Library,
        origin: u16,
        options: &BTreeMap<String, String>,
        cpu: Option<usize>,
    ) -> Result<Self, Error> {
        let port = free_port()?;
        let mut command = library.command()?;
        let version = library.version().to_owned();
        Server::start(library.name(), version, port, &mut command, cpu, |command, _| {
            command.args(["--listen", &port.to_string(), "--upstream", &origin.to_string()]);
            command.args(arguments(library, options));
            Ok(())
        })
        .map(Self)
    }

    /// The proxy's port on 127.0.0.1.
    pub(crate) const fn port(&self) -> u16 {
        self.0.port()
    }
}

/// Options as each of them reads them: Go's flags that are on or off take their value behind an equals sign.
fn arguments(library: Library, options: &BTreeMap<String, String>) -> Vec<String> {
    let each = options.iter().map(|(key, value)| match library {
        Library::FailsafeGo => vec![format!("--{key}={value}")],
        Library::LittleLoadshedder | Library::ConcurrencyLimits => {
            vec![format!("--{key}"), value.clone()]
        }
    });
    each.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_those_that_are_built() {
        let manifests = [
            (
                Library::LittleLoadshedder,
                include_str!("../../peers/little-loadshedder/Cargo.toml"),
                "little-loadshedder=\"={}\"",
            ),
            (Library::FailsafeGo, include_str!("../../peers/failsafe-go/go.mod"), "failsafe-gov{}"),
            (
                Library::ConcurrencyLimits,
                include_str!("../../peers/concurrency-limits/pom.xml"),
                "<version>{}</version>",
            ),
        ];
        for (library, manifest, form) in manifests {
            let asked = form.replace("{}", library.version());
            let bare: String = manifest.split_whitespace().collect();
            assert!(bare.contains(&asked), "{}: {asked}", library.name());
        }
    }

    #[test]
    fn each_reads_its_options_in_its_own_way() {
        let options = [("queue", "true"), ("max-limit", "20")];
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(arguments(Library::FailsafeGo, &options), ["--max-limit=20", "--queue=true"]);
        let expected = ["--max-limit", "20", "--queue", "true"];
        assert_eq!(arguments(Library::ConcurrencyLimits, &options), expected);
    }
}
