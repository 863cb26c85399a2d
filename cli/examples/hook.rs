//! Prints verdicts as they come: the client of docs/look-up/api.md. A broken connection costs none of them.
//!
//! ```console
//! $ cargo run -p uview-cli --example hook -- unix:/run/uview/operators.sock     # all services
//! $ cargo run -p uview-cli --example hook -- unix:/run/uview/operators.sock 7   # LMAP 7, until it is deleted
//! ```

use std::error::Error;

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{HookEvent, RegisterHookRequest, ResumeHookRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "unix:/run/uview/operators.sock".to_owned());
    let lmaps = arguments.map(|lmap| lmap.parse()).collect::<Result<_, _>>()?;
    follow(address, lmaps, |line| println!("{line}")).await
}

/// Passes a line for each event of `lmaps`, or of all, to `out`, until the last of them is deleted or the agent ends.
///
/// # Errors
///
/// The agent cannot be reached, or refuses: it says why.
pub async fn follow(address: String, lmaps: Vec<u32>, mut out: impl FnMut(String)) -> Result<(), Box<dyn Error>> {
    // Verdicts above γ, and where alarms begin and end.
    let request = RegisterHookRequest { lmaps, min_share: 1.0, ..RegisterHookRequest::default() };

    // Connects when it is needed, and again after a connection broke.
    let mut client = OperatorsClient::new(Endpoint::from_shared(address)?.connect_lazy());
    let mut events = client.register_hook(request.clone()).await?.into_inner();
    let mut last = None;
    loop {
        match events.message().await {
            Ok(Some(event)) => {
                out(line(&event));
                last = Some((event.hook, event.sequence));
            }
            Ok(None) => return Ok(()),
            Err(broken) => {
                out(format!("{}: resuming", broken.message()));
                events = resume(&mut client, last, &request).await?;
            }
        }
    }
}

/// Goes on after the `last` event, or with a new hook if the agent has forgotten this one after a minute.
async fn resume(
    client: &mut OperatorsClient<Channel>,
    last: Option<(u32, u64)>,
    request: &RegisterHookRequest,
) -> Result<Streaming<HookEvent>, tonic::Status> {
    if let Some((hook, after)) = last {
        match client.resume_hook(ResumeHookRequest { hook, after }).await {
            Err(status) if status.code() == Code::NotFound => {}
            resumed => return Ok(resumed?.into_inner()),
        }
    }
    Ok(client.register_hook(request.clone()).await?.into_inner())
}

fn line(event: &HookEvent) -> String {
    let HookEvent { service, episode, score, gamma, lost, .. } = event;
    if let Some(change) = &event.change {
        return format!("{service} {}: {}", event.state, change.reason);
    }
    let reasons: Vec<_> = event.reasons.iter().map(|reason| reason.column.as_str()).collect();
    format!("{service} {episode}: score {score:.2} of {gamma:.2}, by {}; {lost} lost", reasons.join(", "))
}
