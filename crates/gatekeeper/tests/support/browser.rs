//! Chromium without a window, driven over the pipe of its DevTools protocol.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long the browser may take. Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(60);
/// The names of the program.
const NAMES: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];

/// A page in a browser; dropping it ends the browser.
pub(crate) struct Page {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    number: u64,
    /// What the browser told unasked.
    pub(crate) events: Vec<Value>,
    _profile: TempDir,
}

impl Page {
    /// Opens an address in a window of this size.
    pub(crate) fn open(url: &str, (width, height): (u32, u32)) -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let exists = |name: &&&str| {
            path.split(':').any(|directory| std::path::Path::new(directory).join(name).exists())
        };
        let program = NAMES.iter().find(exists).expect("there is no Chromium: `make setup` installs it");
        let profile = tempfile::tempdir().expect("a directory");
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
            .args(["--remote-debugging-pipe", &format!("--user-data-dir={}", profile.path().display())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the browser starts");
        let commands = child.stdin.take().expect("its input");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while output.read_until(0, &mut bytes).is_ok_and(|count| count > 0) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).expect("the browser speaks JSON");
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
        let target = page.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        page.session =
            page.ask("Target.attachToTarget", attach)["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.ask(&format!("{domain}.enable"), json!({}));
        }
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        page.ask("Emulation.setDeviceMetricsOverride", metrics);
        page.ask("Page.navigate", json!({"url": url}));
        page
    }

    /// A command's result.
    pub(crate) fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut command = json!({"id": self.number, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).expect("the browser reads");
        loop {
            let mut message = self.messages.recv_timeout(BOUND).expect("the browser answers");
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.ask("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true in the page.
    pub(crate) fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + BOUND;
        // What it looks at may not be there yet.
        let asked =
            format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()");
        while self.value(&asked) != true {
            assert!(
                Instant::now() < deadline,
                "never true: {expression}\n{}",
                self.value("document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A picture of the whole page, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let answer =
            self.ask("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        let data = answer["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD.decode(data).expect("it is base64")
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
