//! A link with the page's server on its one side, and a browser beside downloads on the other.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use testbed::browser::Page;
use testbed::link::{Link, Properties, SERVER};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::site::{self, DOCUMENT, DOWNLOAD, FILES};
use super::{Came, Painted};
use crate::Error;
use crate::blocking::blocking;
use crate::encryption::{Identity, Trust};
use crate::gatekeeper::Gatekeeper;
use crate::http::{Nginx, NginxRole, on_one_thread};

const LINK: Properties = Properties { bits: 10_000_000, queue: 100, segment: 1_460, wan: None };
/// The size of the browser's window, in pixels.
const WINDOW: (u32, u32) = (1440, 900);
/// Bytes that downloads have received, for each, before the page is opened: more than the kernel queues.
/// A gate may serve one after the other.
const UNDER_WAY: u64 = 500_000;
/// How long that may take.
const UNDER_WAY_BOUND: Duration = Duration::from_secs(60);

/// What stands between the browser and the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the origin itself, an nginx, speaks HTTP/2.
    Direct,
    /// An nginx.
    Nginx,
    /// A gate that orders responses.
    Gate,
}

/// All variants.
pub const VARIANTS: [Variant; 3] = [Variant::Direct, Variant::Nginx, Variant::Gate];

impl Variant {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Gate => "Gatekeeper",
        }
    }
}

/// The servers and the link. They end in this order: what stands in between, origin, link.
struct Testbed {
    gate: Option<Gatekeeper>,
    nginx: Option<Nginx>,
    origin: Nginx,
    link: Link,
    identity: Identity,
    _files: TempDir,
}

impl Testbed {
    fn start(variant: Variant) -> Result<Self, Error> {
        let files = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
        site::write(files.path())?;
        let (identity, link) = (Identity::new()?, Link::new(LINK)?);
        let role = NginxRole::Files(files.path().to_owned());
        let start = || -> Result<_, Error> {
            if variant == Variant::Direct {
                return Ok((Nginx::start_secured(&role, &identity, None)?, None, None));
            }
            let origin = Nginx::start(&role, None)?;
            if variant == Variant::Nginx {
                let nginx = Nginx::start_secured(&NginxRole::Proxy(origin.port()), &identity, None)?;
                return Ok((origin, Some(nginx), None));
            }
            let tls = identity.keys();
            let mut keys: Vec<_> = tls.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            keys.extend([("uplink", "\"10Mbit\""), ("egress", "\"srpt\"")]);
            let gate = Gatekeeper::start_http_on(Ipv4Addr::UNSPECIFIED, origin.port(), &keys, None)?;
            Ok((origin, None, Some(gate)))
        };
        let (origin, nginx, gate) = link.server().inside(|| Ok(start()))??;
        Ok(Self { gate, nginx, origin, link, identity, _files: files })
    }

    fn port(&self) -> u16 {
        let nginx = self.nginx.as_ref().unwrap_or(&self.origin);
        self.gate.as_ref().map_or_else(|| nginx.port(), Gatekeeper::port)
    }
}

/// The page in a new browser, beside so many downloads.
pub(super) async fn paint(variant: Variant, downloads: usize) -> Result<Painted, Error> {
    let testbed = blocking(move || Testbed::start(variant)).await?;
    let received: Arc<Vec<AtomicU64>> = Arc::new((0..downloads).map(|_| AtomicU64::new(0)).collect());
    let (port, trust) = (testbed.port(), testbed.identity.trust.clone());
    let counters = Arc::clone(&received);
    let load = on_one_thread(Some(testbed.link.clients().clone()), async move || {
        let mut all = JoinSet::new();
        for at in 0..counters.len() {
            all.spawn_local(download(port, trust.clone(), Arc::clone(&counters), at));
        }
        // Nobody waits for the last byte, so the first that ends has failed.
        match all.join_next().await {
            Some(ended) => ended.map_err(|error| Error::Experiment(format!("a download: {error}")))?,
            None => std::future::pending().await,
        }
    });
    let page = async {
        until_under_way(&received).await?;
        let before = total(&received);
        let began = Instant::now();
        let (mut page, testbed) = blocking(move || read(&testbed).map(|page| (page, testbed))).await?;
        page.downloaded = (total(&received) - before) as f64 / began.elapsed().as_secs_f64();
        Ok::<_, Error>((page, testbed))
    };
    let (page, testbed) = tokio::select! {
        page = page => page?,
        ended = load => return Err(ended.err().unwrap_or_else(|| Error::Experiment("a download ended".to_owned()))),
    };
    blocking(move || {
        drop(testbed);
        Ok(())
    })
    .await?;
    Ok(page)
}

fn total(received: &[AtomicU64]) -> u64 {
    received.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
}

async fn until_under_way(received: &[AtomicU64]) -> Result<(), Error> {
    let began = Instant::now();
    while total(received) < UNDER_WAY * received.len() as u64 {
        if began.elapsed() > UNDER_WAY_BOUND {
            return Err(Error::Experiment("the downloads didn't get under way".to_owned()));
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Reads the large file, and counts its bytes.
async fn download(port: u16, trust: Trust, received: Arc<Vec<AtomicU64>>, at: usize) -> Result<(), Error> {
    let read = async {
        let stream = TcpStream::connect((SERVER, port)).await?;
        let mut stream = trust.secure(stream).await?;
        let request = format!("GET /{DOWNLOAD} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = stream.read(&mut buffer).await?;
            if count == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
            }
            received[at].fetch_add(count as u64, Ordering::Relaxed);
        }
    };
    read.await.map_err(Error::io("downloading"))
}

/// Opens the page, and asks the browser what became of it.
fn read(testbed: &Testbed) -> Result<Painted, Error> {
    let url = format!("https://{SERVER}:{}/{DOCUMENT}", testbed.port());
    let mut page =
        testbed.link.clients().inside(|| Page::open_with(&url, WINDOW, &["--ignore-certificate-errors"]))?;
    page.until("seen.painted")?;
    let told = page.value(
        "(() => {
           const entries = type => performance.getEntriesByType(type);
           const files = [...entries('navigation'), ...entries('resource')];
           return {
             painted: seen.painted,
             largest: seen['largest-contentful-paint'],
             first: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,
             files: files.sort((one, other) => one.responseEnd - other.responseEnd).map(file => ({
               name: new URL(file.name).pathname.slice(1),
               head: file.responseStart / 1e3,
               end: file.responseEnd / 1e3,
             })),
           };
         })()",
    )?;
    over_one_connection(&page.events)?;
    let time = |value: &Value| value.as_f64().map(|milliseconds| milliseconds / 1e3);
    let files: Option<Vec<Came>> = serde_json::from_value(told["files"].clone()).ok();
    match (time(&told["painted"]), time(&told["first"]), time(&told["largest"]), files) {
        (Some(painted), Some(first), Some(largest), Some(files)) if files.len() == FILES => {
            Ok(Painted { painted, first, largest, files, downloaded: 0.0 })
        }
        _ => Err(Error::Experiment(format!("the browser says too little of the page: {told}"))),
    }
}

/// Sees to it that all files came over one HTTP/2 connection, whole.
fn over_one_connection(events: &[Value]) -> Result<(), Error> {
    let (mut connections, mut files) = (std::collections::BTreeSet::new(), 0);
    for event in events.iter().filter(|event| event["method"] == "Network.responseReceived") {
        let response = &event["params"]["response"];
        if !response["url"].as_str().is_some_and(|url| url.starts_with("https:")) {
            continue;
        }
        if response["protocol"] != "h2" || response["status"] != 200 {
            return Err(Error::Experiment(format!("a file didn't come over HTTP/2: {response}")));
        }
        connections.insert(response["connectionId"].to_string());
        files += 1;
    }
    if connections.len() != 1 || files != FILES {
        let connections = connections.len();
        return Err(Error::Experiment(format!(
            "{files} of {FILES} files came, over {connections} connections"
        )));
    }
    Ok(())
}
