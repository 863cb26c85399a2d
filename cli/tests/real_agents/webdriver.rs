//! A real browser: Chromium, driven by WebDriver (W3C), as far as the page's test needs it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// Keys as WebDriver names them.
pub const ENTER: &str = "\u{e007}";
pub const ESCAPE: &str = "\u{e00c}";

/// chromedriver, ended with its test.
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
    /// Starts it at a free port; `None` where there is none.
    pub fn start() -> Option<Self> {
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
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json"
        );
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        // It keeps the connection, whatever it is told.
        let mut answer = BufReader::new(stream);
        let head: Vec<_> = answer.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        let length =
            head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap()];
        answer.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Opens a browser without windows.
    pub fn browser(&self) -> Browser<'_> {
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"];
        let options = json!({ "args": arguments });
        let wanted = json!({
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" },
        });
        let session = self.call("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        Browser { driver: self, session: session["sessionId"].as_str().unwrap().to_owned() }
    }
}

/// A browser, closed with its test.
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

    /// Pretends a screen of this size, and a choice of light or dark.
    pub fn pretend(&self, (width, height): (u32, u32), scheme: &str) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        for (command, with) in [("Emulation.setDeviceMetricsOverride", metrics), ("Emulation.setEmulatedMedia", media)]
        {
            self.call("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": with }));
        }
    }

    /// Errors on its console since the last call.
    pub fn errors(&self) -> Vec<Value> {
        let log = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE").cloned().collect()
    }
}
