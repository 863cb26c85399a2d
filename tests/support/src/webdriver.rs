//! A real browser: Chromium, driven by WebDriver (W3C), as far as tests of the live page need it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::not_run;

/// The key Enter, as WebDriver names it.
pub const ENTER: &str = "\u{e007}";
/// The key Escape, as WebDriver names it.
pub const ESCAPE: &str = "\u{e00c}";

/// Why what chromedriver says may be relied on: it follows a standard.
const STANDARD_ANSWER: &str = "WebDriver answers as its standard says";

/// A running chromedriver, ended with its test.
#[derive(Debug)]
pub struct Driver {
    process: Child,
    port: u16,
}

impl Drop for Driver {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

impl Driver {
    /// Starts it at a free port, for `what`; `None` where there is none, which is said.
    #[must_use]
    pub fn start_for(what: &str) -> Option<Self> {
        let driver = Self::start();
        if driver.is_none() {
            not_run(&format!("{what}: it needs chromium and chromedriver"));
        }
        driver
    }

    fn start() -> Option<Self> {
        let mut command = Command::new("chromedriver");
        let mut process = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut lines = BufReader::new(process.stdout.take()?).lines().map_while(Result::ok);
        let port =
            lines.find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok());
        // It goes on writing, to nobody, and must not be ended by that.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { process, port: port? })
    }

    /// What it answers to a command that is carried out.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.request(method, path, body);
        assert!(answer["value"]["error"].is_null(), "{method} {path}: {answer}");
        answer["value"].clone()
    }

    /// What it answers to a command.
    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens while it runs");
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json"
        );
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("chromedriver reads a request");
        // It keeps the connection, whatever it is told.
        let mut answer = BufReader::new(stream);
        let lines = answer.by_ref().lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let length =
            head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.expect(STANDARD_ANSWER)];
        answer.read_exact(&mut body).expect(STANDARD_ANSWER);
        serde_json::from_slice(&body).expect(STANDARD_ANSWER)
    }

    /// Opens a browser without windows.
    pub fn browser(&self) -> Browser<'_> {
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"];
        let options = json!({ "args": arguments });
        let wanted = json!({
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" },
        });
        let session = self.call("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        Browser { driver: self, session: session["sessionId"].as_str().expect(STANDARD_ANSWER).to_owned() }
    }
}

/// A browser, closed with its test.
#[derive(Debug)]
pub struct Browser<'a> {
    driver: &'a Driver,
    session: String,
}

impl Drop for Browser<'_> {
    fn drop(&mut self) {
        // Also after a failure: the browser would outlive its driver.
        self.driver.request("DELETE", &format!("/session/{}", self.session), &json!({}));
    }
}

impl Browser<'_> {
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.driver.call(method, &format!("/session/{}{path}", self.session), body)
    }

    /// Goes to an address.
    pub fn open(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    /// Loads its page anew.
    pub fn reload(&self) {
        self.call("POST", "/refresh", &json!({}));
    }

    /// What a script returns.
    pub fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Presses keys, wherever the focus is.
    pub fn press(&self, keys: &str) {
        let strokes =
            keys.chars().flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })));
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes.collect::<Vec<_>>() });
        self.call("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// Pretends a screen of this size, and a choice of `light` or `dark`.
    pub fn pretend(&self, (width, height): (u32, u32), scheme: &str) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.emulate("setDeviceMetricsOverride", &metrics);
        self.emulate("setEmulatedMedia", &media);
    }

    /// Pretends that the browser's clock is in this time zone, such as `Asia/Kolkata`.
    pub fn pretend_zone(&self, zone: &str) {
        self.emulate("setTimezoneOverride", &json!({ "timezoneId": zone }));
    }

    /// A command of Chromium's own protocol.
    fn emulate(&self, command: &str, with: &Value) {
        let command = json!({ "cmd": format!("Emulation.{command}"), "params": with });
        self.call("POST", "/goog/cdp/execute", &command);
    }

    /// What is on the screen now, as a PNG file.
    pub fn screenshot(&self) -> Vec<u8> {
        let png = self.call("GET", "/screenshot", &json!({}));
        STANDARD.decode(png.as_str().expect(STANDARD_ANSWER)).expect(STANDARD_ANSWER)
    }

    /// Errors on its console since the last call.
    pub fn errors(&self) -> Vec<Value> {
        let log = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().expect(STANDARD_ANSWER);
        entries.iter().filter(|entry| entry["level"] == "SEVERE").cloned().collect()
    }
}
