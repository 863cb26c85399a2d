//! The token of a cluster that each call shows. It is read from its file at each call: kubelet renews it.

use std::path::{Path, PathBuf};

use tonic::metadata::AsciiMetadataValue;
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// A longer file is no token.
const MAX_BYTES: u64 = 16 << 10;

/// Adds the token in a file to each call; nothing without a file.
#[derive(Clone, Debug)]
pub struct Bearer(pub(super) Option<PathBuf>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(path) = &self.0 {
            request.metadata_mut().insert("authorization", read(path).map_err(Status::unauthenticated)?);
        }
        Ok(request)
    }
}

/// The value of `authorization` for the token in `path`, or what is wrong with the file.
fn read(path: &Path) -> Result<AsciiMetadataValue, String> {
    let file = path.display();
    let length = std::fs::metadata(path).map_err(|error| format!("{file} cannot be read: {error}"))?.len();
    if length > MAX_BYTES {
        return Err(format!("{file} has {length} bytes: a token has at most {MAX_BYTES}"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{file} cannot be read: {error}"))?;
    let token = text.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let value = is_token.then(|| format!("Bearer {token}").parse().ok()).flatten();
    let mut value: AsciiMetadataValue = value.ok_or_else(|| format!("{file} has no token: one line of ASCII"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_shows_the_token_that_is_in_the_file_then() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let mut bearer = Bearer(Some(file.clone()));
        let mut shown = || -> Result<String, Status> {
            let request = bearer.call(Request::new(()))?;
            Ok(request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned())
        };

        assert!(shown().unwrap_err().message().contains("token cannot be read"));
        std::fs::write(&file, "first\n").unwrap();
        assert_eq!(shown().unwrap(), "Bearer first");
        std::fs::write(&file, "second").unwrap();
        assert_eq!(shown().unwrap(), "Bearer second");
        for wrong in ["", "two words", "ä", &"x".repeat(MAX_BYTES as usize + 1)] {
            std::fs::write(&file, wrong).unwrap();
            assert!(shown().is_err(), "{wrong:.20}");
        }
        assert!(Bearer(None).call(Request::new(())).unwrap().metadata().is_empty());
    }
}
