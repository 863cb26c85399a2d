//! One click from what somebody sees to what belongs to it: the incident, its services, their traces.

use std::path::Path;

use serde_json::{Value, json};

use super::senders::TRACES;
use super::shows;
use crate::webdriver::Browser;
use crate::{WAIT, lmap};

/// Waits until an element has an address, and returns it.
fn address_of(browser: &Browser<'_>, what: &str, element: &str) -> String {
    WAIT.until(what, || {
        let found = browser.run(&format!("return document.querySelector(\"{element}\")?.getAttribute('href')"));
        found.as_str().map(str::to_owned)
    })
}

/// Clicks on a link, and waits for the view to which it leads.
fn follow(browser: &Browser<'_>, to: &str) {
    browser.run(&format!("document.querySelector(`main a[href='${{{}}}']`).click()", json!(to)));
    WAIT.until(to, || browser.run("return location.hash") == json!(to));
}

/// From the overview to the incident that goes on, to a service of it, to the traces of that.
pub fn of_an_alarm(browser: &Browser<'_>, run: &Path) {
    browser.run("location.hash = '#/'");
    let incident = address_of(browser, "the heading leads to the open incident", "h1 a:not([hidden])");
    assert!(incident.starts_with("#/incident/"), "{incident}");
    WAIT.until("the open incident is above the services, and not among those that are over", || {
        let places = browser.run(&format!(
            "const [open, over] = ['.open', 'section:not(.open)'].map((of) => document.querySelector(`${{of}} .incident[href='{incident}']`)); \
             return open && [open.compareDocumentPosition(document.querySelector('.services')) & Node.DOCUMENT_POSITION_FOLLOWING, over]"
        ));
        (places == json!([4, null])).then_some(())
    });
    follow(browser, &incident);

    shows(browser, "Kept by error: ");
    let links = browser.run(
        "return [...document.querySelectorAll('.waterfall + p a')].slice(0, 2).map((of) => of.getAttribute('href'))",
    );
    let trace = links[0].as_str().and_then(|own| own.strip_prefix("#/trace/")).unwrap_or_default();
    assert_eq!((trace.len(), &links[1]), (32, &json!(format!("{TRACES}{trace}"))), "{links}");
    let kept = incident.replace("/incident/", "/traces/");
    address_of(browser, "traces of the incident", &format!("main a[href='{kept}']"));
    let [payment, checkout] =
        ["payment", "checkout"].map(|service| format!("#/service/{}", lmap(run, service).unwrap()["lmap"]));
    address_of(browser, "the other service of the incident", &format!("main a[href='{checkout}']"));
    follow(browser, &payment);

    address_of(browser, "the service leads back to its incident", &format!(".links a[href='{incident}']"));
    follow(browser, "#/traces/payment");
    WAIT.until("traces of payment are listed, and no others", || {
        browser.run("return document.querySelector('.trace') !== null") == Value::Bool(true)
    });
    let of_another = format!("document.querySelector('.trace[href$=\"{:032x}\"]')", 0xabc);
    assert_eq!(browser.run(&format!("return {of_another}")), Value::Null);
    browser.run("const field = document.querySelector('input[type=search]'); field.value = ''; field.dispatchEvent(new Event('input'))");
    WAIT.until("without a filter all are listed", || {
        browser.run(&format!("return {of_another} !== null")) == Value::Bool(true)
    });
}
