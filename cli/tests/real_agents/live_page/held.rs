//! What somebody selects, or has the focus on, is not drawn anew before they are done.

use std::path::Path;

use serde_json::{Value, json};

use super::{shows, view};
use crate::webdriver::Browser;
use crate::{WAIT, lmap};

/// Whether a script returns true.
fn is(browser: &Browser<'_>, script: &str) -> bool {
    browser.run(&format!("return {script}")) == Value::Bool(true)
}

/// A metric that stands out is selected while its service is in alarm: it stays, and others go on.
pub fn while_somebody_selects(browser: &Browser<'_>, run: &Path) {
    browser.run(&format!("location.hash = '#/service/{}'", lmap(run, "payment").unwrap()["lmap"]));
    shows(browser, "What stands out");
    let select = "window.held = [...document.querySelectorAll('h2')].find((of) => of.textContent === 'What stands out')\
                  ?.nextElementSibling.querySelector('td:nth-child(2)'); \
                  window.other = document.querySelector('.facts'); \
                  if (!window.held || !window.other) return null; \
                  getSelection().selectAllChildren(window.held); return getSelection().toString()";
    let selected = WAIT.until("a metric is selected", || {
        let text = browser.run(select);
        text.as_str().filter(|text| text.contains("queue")).map(str::to_owned)
    });

    WAIT.until("other parts are drawn meanwhile", || is(browser, "!window.other.isConnected"));

    let held = browser.run("return [window.held.isConnected, getSelection().toString()]");
    assert_eq!(held, json!([true, selected]));
    browser.run("getSelection().removeAllRanges()");
    WAIT.until("it is drawn when nobody selects", || is(browser, "!window.held.isConnected"));
}

/// Somebody walks by keys through the sources, whose figures change with each scrape.
pub fn while_somebody_has_the_focus(browser: &Browser<'_>) {
    view(browser, "#/sources", "exporter");
    let focus = "(window.held = document.querySelector('summary')).focus(); performance.clearResourceTimings(); \
                 return window.held.matches(':focus-visible')";
    assert_eq!(browser.run(focus), Value::Bool(true));

    WAIT.until("what changes was fetched several times", || {
        let fetched = "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/api/sources'))";
        is(browser, &format!("{fetched}.length >= 3"))
    });

    assert!(is(browser, "window.held.isConnected && document.activeElement === window.held"), "it has the focus");
    browser.run("document.activeElement.blur()");
    WAIT.until("it is drawn when the focus is elsewhere", || is(browser, "!window.held.isConnected"));
}
