//! Lists and watches of the API server. A list comes from the server's cache, as the kubelet's does: the store is not
//! read, and what is told is some moments old at most, which the watch makes up for. Only a list that is too long for
//! one answer is read from the store, page by page.

use core::error::Error;
use core::fmt::Debug;

use agent_runtime::api_server;
use http_body_util::LengthLimitError;
use kube::runtime::watcher::{self, Event, ListSemantic};
use kube::runtime::{WatchStreamExt as _, watcher as changes};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio_stream::{Stream, StreamExt as _};

/// Objects of a page.
const PAGE: u32 = 25;

/// A list of `objects` that `fields` select, and what changes, for ever. After errors it begins anew, each time later.
pub(crate) fn cached<K>(
    objects: Api<K>,
    fields: Option<String>,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let pages = watcher::Config { field_selector: fields, page_size: Some(PAGE), ..watcher::Config::default() };
    // With a limit, the server would read its store.
    let whole = watcher::Config { list_semantic: ListSemantic::Any, page_size: None, ..pages.clone() };
    let fits = |event: &Result<Event<K>, watcher::Error>| !event.as_ref().is_err_and(is_too_long);
    let whole = changes(objects.clone(), whole).default_backoff().take_while(fits);
    whole.chain(changes(objects, pages).default_backoff())
}

/// Whether a list had more bytes than `bounded` allows.
fn is_too_long(error: &watcher::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// `client`, whose lists from the server's cache have at most `most` bytes: one that is longer is an error and no
/// memory. Pages are bounded by their number of objects, and each event of a watch is one object.
pub(crate) fn bounded(client: Client, most: usize) -> Client {
    api_server::bounded(client, most, is_cached_list)
}

/// Whether this is asked of a list from the server's cache, and of no watch.
fn is_cached_list(query: &str) -> bool {
    let has = |wanted: &str| query.split('&').any(|part| part == wanted);
    has("resourceVersion=0") && !has("watch=true")
}
