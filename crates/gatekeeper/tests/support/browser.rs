//! A page in Chromium, which fails the test where the browser fails.

use serde_json::{Value, json};

/// A page in a browser; dropping it ends the browser.
pub(crate) struct Page(testbed::browser::Page);

impl Page {
    /// Opens an address in a window of this size.
    pub(crate) fn open(url: &str, size: (u32, u32)) -> Self {
        Self(testbed::browser::Page::open(url, size).expect("the browser starts"))
    }

    /// What the browser told unasked.
    pub(crate) fn events(&self) -> &[Value] {
        &self.0.events
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        self.0.value(expression).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until an expression is true in the page.
    pub(crate) fn until(&mut self, expression: &str) {
        self.0.until(expression).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Has the page looked at as by somebody who likes it dark.
    pub(crate) fn darken(&mut self) {
        let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
        self.0.ask("Emulation.setEmulatedMedia", dark).expect("the browser can");
    }

    /// A picture of the whole page, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        self.0.picture().expect("a picture")
    }
}
