//! The thread that requests region descriptors from the host agent.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, SyncSender, channel};
use std::thread;

use transport::attach::{Attacher, RequestError};

use super::event::Event;
use crate::attachments::AttachRequest;
use crate::effect_error::EffectError;

/// Starts the thread. It ends when the sender is dropped. At most one request per configured region is queued.
///
/// # Errors
///
/// The system cannot start a thread.
pub(super) fn start(socket: Option<PathBuf>, events: SyncSender<Event>) -> io::Result<Sender<AttachRequest>> {
    let (sender, requests) = channel();
    thread::Builder::new().name("attach".to_owned()).spawn(move || {
        let mut attacher = None;
        for request in requests {
            let outcome = match &socket {
                Some(socket) => ask(socket, &mut attacher, &request),
                None => Err("this worker has no regions socket: its configuration says regions_socket: null".into()),
            };
            if events.send(Event::Descriptor(request, outcome)).is_err() {
                return;
            }
        }
    })?;
    Ok(sender)
}

/// Sends the request over the open connection, or over a new one if that has failed.
fn ask(socket: &Path, attacher: &mut Option<Attacher>, request: &AttachRequest) -> Result<OwnedFd, EffectError> {
    if let Some(known) = attacher {
        match known.request(request.host, request.region, request.size) {
            Ok(descriptor) => return Ok(descriptor),
            Err(error @ (RequestError::Refused { .. } | RequestError::Size { .. })) => {
                return Err(EffectError::of(&error));
            }
            Err(_) => *attacher = None,
        }
    }
    let new = Attacher::connect(socket).map_err(|error| format!("cannot connect to {}: {error}", socket.display()))?;
    let new = attacher.insert(new);
    new.request(request.host, request.region, request.size).map_err(|error| {
        let text = EffectError::of(&error);
        if !matches!(error, RequestError::Refused { .. } | RequestError::Size { .. }) {
            *attacher = None;
        }
        text
    })
}
