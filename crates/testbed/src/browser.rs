//! Chromium without a window, driven over the pipe of its DevTools protocol.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Error;

/// How long the browser may take. Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(60);
/// The names of the program.
const NAMES: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];

/// What the browser tells of unasked.
const DOMAINS: [&str; 4] = ["Page", "Runtime", "Log", "Network"];

/// A page in a browser; dropping it ends the browser.
#[derive(Debug)]
pub struct Page {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    number: u64,
    /// What the browser told unasked.
    pub events: Vec<Value>,
    _profile: TempDir,
}

impl Page {
    /// Opens an address in a window of this size.
    ///
    /// # Errors
    /// If there is no Chromium, or it doesn't start or answer.
    pub fn open(url: &str, window: (u32, u32)) -> Result<Self, Error> {
        Self::open_with(url, window, &[])
    }

    /// Opens an address in a window of this size, in a browser with these flags.
    ///
    /// # Errors
    /// As [`Page::open`].
    pub fn open_with(url: &str, (width, height): (u32, u32), flags: &[&str]) -> Result<Self, Error> {
        let path = std::env::var("PATH").unwrap_or_default();
        let exists = |name: &&&str| {
            path.split(':').any(|directory| std::path::Path::new(directory).join(name).exists())
        };
        let program = NAMES
            .iter()
            .find(exists)
            .ok_or_else(|| Error::Missing("there is no Chromium: `make setup` installs it".to_owned()))?;
        let profile = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
        // The protocol's pipes are the descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null", "sh", program])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(flags)
            .args(["--remote-debugging-pipe", &format!("--user-data-dir={}", profile.path().display())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::io(format!("starting {program}")))?;
        let (Some(commands), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(broken("the browser has no pipes"));
        };
        let mut output = BufReader::new(output);
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while output.read_until(0, &mut bytes).is_ok_and(|count| count > 0) {
                bytes.pop();
                let Ok(message) = serde_json::from_slice(&bytes) else { return };
                bytes.clear();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut page = Self {
            child,
            commands,
            messages,
            session: String::new(),
            number: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = page.ask("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = page.ask("Target.attachToTarget", attach)?;
        attached["sessionId"].as_str().unwrap_or_default().clone_into(&mut page.session);
        for domain in DOMAINS {
            page.ask(&format!("{domain}.enable"), json!({}))?;
        }
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        page.ask("Emulation.setDeviceMetricsOverride", metrics)?;
        page.ask("Page.navigate", json!({"url": url}))?;
        Ok(page)
    }

    /// The process id of the browser, whose descendants draw the page.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends what the browser tells unasked, which costs it processor time.
    ///
    /// # Errors
    /// If the browser doesn't answer.
    pub fn quiet(&mut self) -> Result<(), Error> {
        DOMAINS.iter().try_for_each(|domain| self.ask(&format!("{domain}.disable"), json!({})).map(drop))
    }

    /// A command's result.
    ///
    /// # Errors
    /// If the browser refuses it, or doesn't answer.
    pub fn ask(&mut self, method: &str, parameters: Value) -> Result<Value, Error> {
        self.number += 1;
        let mut command = json!({"id": self.number, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        let written = self.commands.write_all(format!("{command}\0").as_bytes());
        written.map_err(Error::io("asking the browser"))?;
        loop {
            let mut message =
                self.messages.recv_timeout(BOUND).map_err(|error| broken(&format!("{method}: {error}")))?;
            if message["id"] == self.number {
                let is_refused = !message["error"].is_null();
                return if is_refused {
                    Err(broken(&format!("{method}: {message}")))
                } else {
                    Ok(message["result"].take())
                };
            }
            self.events.push(message);
        }
    }

    /// The value of an expression in the page.
    ///
    /// # Errors
    /// If it throws, or the browser doesn't answer.
    pub fn value(&mut self, expression: &str) -> Result<Value, Error> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.ask("Runtime.evaluate", asked)?;
        if !answer["exceptionDetails"].is_null() {
            return Err(broken(&format!("{expression}: {answer}")));
        }
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression is true in the page.
    ///
    /// # Errors
    /// If it never is; the text says what the page shows.
    pub fn until(&mut self, expression: &str) -> Result<(), Error> {
        let deadline = Instant::now() + BOUND;
        // What it looks at may not be there yet.
        let asked =
            format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()");
        while self.value(&asked)? != true {
            if Instant::now() >= deadline {
                let shown = self.value("document.body.innerText")?;
                return Err(broken(&format!("never true: {expression}\n{shown}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A picture of the whole page, as PNG.
    ///
    /// # Errors
    /// If the browser draws none.
    pub fn picture(&mut self) -> Result<Vec<u8>, Error> {
        let answer =
            self.ask("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}))?;
        let data = answer["data"].as_str().unwrap_or_default();
        base64::engine::general_purpose::STANDARD
            .decode(data)
            .map_err(|error| broken(&format!("a picture: {error}")))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn broken(problem: &str) -> Error {
    Error::Unusable(format!("the browser: {problem}"))
}
