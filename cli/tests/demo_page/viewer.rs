//! Somebody who looks at the page of a demo.

use serde_json::{Value, json};
use support::webdriver::{Browser, Driver};

use crate::WAIT;
use crate::running::Demo;

/// Screens: width and height in pixels.
pub const DESK: (u32, u32) = (1200, 900);
pub const PHONE: (u32, u32) = (360, 780);

/// A browser with the page.
pub struct Viewer<'a> {
    pub browser: Browser<'a>,
    pub demo: &'a Demo,
}

impl<'a> Viewer<'a> {
    /// Opens an address of the page in a browser of its own.
    pub fn open(driver: &'a Driver, demo: &'a Demo, address: &str) -> Self {
        let browser = driver.browser();
        browser.pretend(DESK, "light");
        browser.open(address);
        Self { browser, demo }
    }

    /// Goes to a view by its address within the page, and waits for its heading.
    #[track_caller]
    pub fn go(&self, hash: &str, heading: &str) {
        self.browser.run(&format!("location.hash = {}", json!(hash)));
        self.heads(heading);
    }

    /// Waits for a view whose heading begins so.
    #[track_caller]
    pub fn heads(&self, heading: &str) {
        let script = format!("return document.querySelector('h1')?.textContent.startsWith({})", json!(heading));
        self.until(&format!("the heading {heading}"), &script);
    }

    /// Waits until `script` returns something else than null and false. A failure says what was shown instead.
    #[track_caller]
    pub fn until(&self, what: &str, script: &str) -> Value {
        WAIT.until(what, || {
            self.demo.assert_runs(what);
            match self.browser.run(script) {
                Value::Null | Value::Bool(false) => Err(self.browser.run("return document.body.innerText")),
                value => Ok(value),
            }
        })
    }

    /// Waits until the page has this text.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.until(text, &format!("return document.body.innerText.includes({})", json!(text)));
    }

    /// The view fits a desk and a phone, by day and by night, and the browser has nothing to object.
    #[track_caller]
    pub fn assert_fits(&self) {
        for (size, scheme) in [(DESK, "dark"), (PHONE, "dark"), (PHONE, "light"), (DESK, "light")] {
            self.browser.pretend(size, scheme);
            let fits = self.browser.run("return document.documentElement.scrollWidth <= window.innerWidth");
            assert_eq!(fits, Value::Bool(true), "{} is wider than {size:?}", self.browser.run("return location.hash"));
        }
        assert_eq!(self.browser.errors(), Vec::<Value>::new());
    }
}
