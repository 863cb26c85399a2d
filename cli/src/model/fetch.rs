//! `uview model fetch`: gets the learned model of a service from a running NIC agent.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use wire::printable;

use super::MAX_BYTES;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// What the address of a Unix socket begins with.
const UNIX: &str = "unix:";
/// Time limit for each read and write.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of the head of a response.
const MAX_HEAD: u64 = 32 << 10;

/// Arguments of `uview model fetch`.
#[derive(Clone, Debug, clap::Args)]
pub struct FetchArgs {
    /// The service whose model is wanted
    service: String,
    /// The NIC agent's socket (models.socket of its configuration), as unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    from: String,
    /// The model file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Fetches a model into a file.
///
/// # Errors
///
/// [`Failure`] if the agent does not answer, refuses, or has no model of the service, or if the file cannot be written.
pub fn run(args: &FetchArgs) -> Result<Exit, Failure> {
    let what = format!("fetch the model of {}", printable::line(&args.service));
    let Some(socket) = args.from.strip_prefix(UNIX) else {
        let because = format!("`{}` is no address of the form unix:PATH", args.from);
        let advice = "--from unix:PATH with models.socket of the NIC agent's configuration";
        return Err(Failure::to(what).because(because).advice(advice).exit_with(Exit::Usage));
    };
    let (status, body) = get(Path::new(socket), &args.service).map_err(|error| {
        let failure = Failure::to(what.as_str()).because(format!("no answer at {socket}")).caused_by(&error);
        failure.advice("does the NIC agent run, with this models.socket?").exit_with(Exit::NoAgent)
    })?;
    if status != 200 {
        let text = String::from_utf8_lossy(&body);
        return Err(Failure::to(what).because(printable::line(text.trim())));
    }
    lmap::Model::decode(&body).map_err(|error| {
        let failure = Failure::to(what.as_str()).because("the answer is no model").caused_by(&error);
        failure.advice("are agent and command of the same release? `uview --version`")
    })?;
    std::fs::write(&args.out, body).map_err(|error| {
        let failure = Failure::to(what.as_str()).because(format!("{} cannot be written", args.out.display()));
        failure.caused_by(&error).advice("does the folder exist, and can you write to it?")
    })?;
    output::print_stderr(&format!("uview: {} is the model of {}", args.out.display(), printable::line(&args.service)));
    Ok(Exit::Fine)
}

/// The status and the body of the agent's answer.
fn get(socket: &Path, service: &str) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let path = escaped(service);
    write!(stream, "GET /models/{path} HTTP/1.1\r\nhost: nic-agent\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_BYTES + MAX_HEAD).read_to_end(&mut answer)?;
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is no HTTP response, or cut"))
}

/// The status and the body of a whole response with a Content-Length.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = (core::str::from_utf8(answer.get(..end)?).ok()?, answer.get(end + 4..)?);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    (body.len() == length).then(|| (status, body.to_vec()))
}

/// `service` as a segment of a path: other bytes than letters, digits and `-._~` as %XX.
fn escaped(service: &str) -> String {
    const OTHERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(service, OTHERS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_response_is_read_and_a_cut_one_is_not() {
        let answer = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\ncontent-length: 5\r\n\r\nnone\n";

        assert_eq!(parse(answer), Some((404, b"none\n".to_vec())));
        for length in 0..answer.len() {
            assert_eq!(parse(&answer[..length]), None, "{length}");
        }
    }

    #[test]
    fn the_name_of_a_service_cannot_leave_its_segment() {
        assert_eq!(escaped("shop/cart-1 ü"), "shop%2Fcart-1%20%C3%BC");
        assert_eq!(escaped("a\r\nb"), "a%0D%0Ab");
    }
}
