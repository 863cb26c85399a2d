//! The way to an incident on the page: a link of another site, such as a chat or Alertmanager, and `uview open
//! INCIDENT`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};

use super::{address, shows};
use crate::ask;
use crate::webdriver::{Browser, Driver};

/// What the page shows of each incident, and nothing else shows.
const INCIDENT: &str = "What was normal before";

/// Serves `html` at another name of this machine: for a browser, another site. Returns its address.
fn other_site(html: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let html = html.clone();
            // A browser has connections by which it asks for nothing.
            std::thread::spawn(move || {
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/html";
                _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{html}", html.len());
            });
        }
    });
    format!("http://localhost:{port}/")
}

/// Where the browser is, from the path on.
fn place(browser: &Browser<'_>) -> Value {
    browser.run("return location.pathname + location.search + location.hash")
}

/// An incident is shown to whom a link of another site leads to it: with a session at once, without one as soon as
/// there is one. The other site itself sees nothing.
pub fn of_others(driver: &Driver, run: &Path) {
    let listed = ask(run, &["incidents"]).unwrap();
    let incident = listed["incidents"][0]["id"].as_str().unwrap();
    let (opening, browser) = (address(run, &[]), driver.browser());
    let (agent, token) = opening.split_once("/open?").unwrap();
    let chat = other_site(format!(
        "<!doctype html><title>chat</title><a href=\"{agent}/#/incident/{incident}\">node-3 is in alarm</a>"
    ));
    let wanted = json!(format!("/#/incident/{incident}"));
    let follow = || {
        browser.open(&chat);
        browser.run("document.querySelector('a').click()");
    };

    follow();
    shows(&browser, "no session: run `uview open`");
    assert_eq!(place(&browser), wanted);
    // As another tab does.
    let opened = browser.run(&format!("return fetch('/open?{token}').then((of) => of.status)"));
    assert_eq!(opened, json!(200));
    browser.run("location.reload()");
    shows(&browser, INCIDENT);
    assert_eq!(place(&browser), wanted);

    follow();
    shows(&browser, INCIDENT);
    assert_eq!(place(&browser), wanted);

    browser.open(&chat);
    for path in ["/", "/arrival.js", "/app.js", "/api/incidents"] {
        let asked = format!("fetch('{agent}{path}', {{ mode: 'no-cors', credentials: 'include' }})");
        let seen = browser.run(&format!("return {asked}.then(() => 'an answer', () => 'nothing')"));
        assert_eq!(seen, json!("nothing"), "{path}");
    }

    let other = driver.browser();
    other.open(&address(run, &[incident]));
    shows(&other, INCIDENT);
    assert_eq!((place(&other), other.errors()), (wanted, Vec::new()));
}
