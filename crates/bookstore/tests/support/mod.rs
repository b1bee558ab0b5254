//! A shop for a test: a private PostgreSQL server, the `bookstore` program as a process, and a browser with
//! cookies.

// Every test program uses some of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use testbed::postgres::{PrivateServer, PrivateServerOptions};
use ureq::http::{HeaderValue, Response};

/// How long a condition may take to come true; only a hang takes so long.
pub(crate) const BOUND: Duration = Duration::from_secs(300);
/// Customers of the smallest shop.
pub(crate) const CUSTOMERS: u32 = 2_880;

/// A private server for tests.
pub(crate) fn server() -> PrivateServer {
    PrivateServer::start(&PrivateServerOptions::default()).expect("a private PostgreSQL server")
}

/// The program with its arguments.
pub(crate) fn bookstore(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bookstore"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    bookstore(arguments).output().expect("the program runs")
}

/// Fills a database with so many books and 2,880 customers, without covers.
pub(crate) fn populate(url: &str, items: &str) {
    let done =
        run(&["populate", "--database", url, "--browsers", "1", "--items", items, "--no-images", "--quiet"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// What `bookstore check` says, and whether all is well.
pub(crate) fn check(url: &str) -> (bool, String) {
    let done = run(&["check", "--database", url]);
    (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < end, "not within {BOUND:?}: {what}");
        thread::yield_now();
    }
}

/// A shop that serves.
pub(crate) struct Site {
    child: Child,
    pub(crate) address: String,
    images: Option<TempDir>,
}

impl Site {
    /// Serves a database's shop, with more arguments.
    pub(crate) fn start(url: &str, arguments: &[&str]) -> Self {
        let mut command = bookstore(&["serve", "--database", url, "--listen", "127.0.0.1:0"]);
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().expect("the shop starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening at ").expect("where it listens").to_owned();
        Self { child, address, images: None }
    }

    /// Keeps a directory for as long as the shop serves.
    pub(crate) fn with(mut self, images: TempDir) -> Self {
        self.images = Some(images);
        self
    }

    /// The directory that is kept.
    pub(crate) fn images(&self) -> PathBuf {
        self.images.as_ref().map(|directory| directory.path().to_owned()).expect("a directory")
    }

    /// Sends SIGTERM.
    pub(crate) fn tell_to_end(&self) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is told");
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a status")
    }

    /// A browser without cookies.
    pub(crate) fn browser(&self) -> Browser {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(BOUND)).build();
        Browser { agent: config.into(), address: self.address.clone(), cookies: BTreeMap::new() }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A browser.
#[derive(Clone)]
pub(crate) struct Browser {
    agent: ureq::Agent,
    address: String,
    pub(crate) cookies: BTreeMap<String, String>,
}

/// What it was answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    /// The value of an attribute, such as `data-order`.
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.body.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value)
    }

    /// Fails if it isn't the page of this interaction.
    #[track_caller]
    pub(crate) fn is(&self, code: &str) -> &Self {
        assert_eq!((self.status, self.attribute("data-interaction")), (200, Some(code)), "{}", self.body);
        self
    }

    /// Fails if it isn't this error.
    #[track_caller]
    pub(crate) fn fails(&self, status: u16, word: &str) {
        assert_eq!((self.status, self.attribute("data-error")), (status, Some(word)), "{}", self.body);
    }
}

impl Browser {
    fn cookie_header(&self) -> String {
        let pairs: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("; ")
    }

    fn answer(&mut self, response: Result<Response<ureq::Body>, ureq::Error>) -> Answer {
        let mut response = response.expect("an answer");
        for cookie in response.headers().get_all("set-cookie") {
            let cookie = cookie.to_str().expect("a text");
            let (name, value) =
                cookie.split(';').next().and_then(|pair| pair.split_once('=')).expect("a pair");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let headers =
            response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let status = response.status().as_u16();
        Answer { status, headers, body: response.body_mut().read_to_string().expect("a body") }
    }

    /// GET.
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.get_with(path, &[])
    }

    /// GET with more headers.
    pub(crate) fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request =
            self.agent.get(format!("{}{path}", self.address)).header("cookie", self.cookie_header());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.call();
        self.answer(response)
    }

    /// POST of a form.
    pub(crate) fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let form = serde_urlencoded::to_string(fields).expect("a form");
        let request =
            self.agent.post(format!("{}{path}", self.address)).header("cookie", self.cookie_header());
        let response = request.content_type("application/x-www-form-urlencoded").send(form);
        self.answer(response)
    }

    /// Says who it is: a customer of the beginning.
    pub(crate) fn sign_in(&mut self, customer: u32) -> Answer {
        let (name, password) = (bookstore::names::user_name(customer), bookstore::names::password(customer));
        self.post("/checkout", &[("returning", "yes"), ("uname", &name), ("password", &password)])
    }

    /// Buys what is in the cart.
    pub(crate) fn buy(&mut self) -> Answer {
        self.post(
            "/checkout/confirm",
            &[
                ("card_type", "VISA"),
                ("card_number", "4000123412341234"),
                ("card_name", "Ada Novak"),
                ("card_expiry", "2030-12-31"),
                ("shipping", "AIR"),
            ],
        )
    }
}

/// Fields of a new customer.
pub(crate) const NEWCOMER: [(&str, &str); 13] = [
    ("returning", "no"),
    ("first_name", "Zoë"),
    ("last_name", "O'Hara <b>"),
    ("street1", "1 New Street"),
    ("street2", ""),
    ("city", "Newtown"),
    ("state", "NT"),
    ("zip", "12345"),
    ("country", "Italy"),
    ("phone", "555"),
    ("email", "zoe@example.com"),
    ("birth_date", "1990-02-28"),
    ("data", "novels"),
];

/// Bytes of the files in a directory.
pub(crate) fn sizes(directory: &Path) -> Vec<u64> {
    let files = std::fs::read_dir(directory).expect("a directory");
    files.map(|file| file.expect("a file").metadata().expect("its size").len()).collect()
}
