//! The REST client of the command line, and which cluster it talks to.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_admin::{Access, ErrorBody, registry};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exit::{FAILURE, Failure, USAGE};

/// Time to reach the process; it is on this machine.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Time for an answer. Removing a large file system is the longest call.
const ANSWER_MAX: Duration = Duration::from_secs(600);

/// A running cluster.
pub struct Client {
    /// Its directory.
    pub dir: PathBuf,
    /// Its address, token and process.
    pub access: Access,
    agent: ureq::Agent,
}

impl Client {
    /// The cluster that `dir`, BRAID_DIR or the registry of this machine names; exit code 3 if it does not run.
    pub fn find(dir: Option<&Path>) -> Result<Self, Failure> {
        let said = dir.map(Path::to_path_buf).or_else(|| env::var_os("BRAID_DIR").map(PathBuf::from));
        match said {
            Some(dir) => Self::at(&dir),
            None => Self::only(),
        }
    }

    /// The cluster in `dir`.
    pub fn at(dir: &Path) -> Result<Self, Failure> {
        let dir = std::path::absolute(dir).unwrap_or(dir.to_path_buf());
        let access = Access::read(&dir)?.ok_or_else(|| {
            let dir = dir.display();
            Failure::not_running(format!("no cluster runs in {dir}: start it with `braid up {dir}`"))
        })?;
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_global(Some(ANSWER_MAX));
        Ok(Self { dir, access, agent: config.build().into() })
    }

    fn only() -> Result<Self, Failure> {
        let running = registry::running();
        match running.as_slice() {
            [] => Err(Failure::not_running(
                "no cluster runs on this machine: start one with `braid up DIR`, or say which with --dir",
            )),
            [dir] => Self::at(dir),
            several => {
                let all: Vec<String> = several.iter().map(|dir| dir.display().to_string()).collect();
                let message =
                    format!("several clusters run on this machine ({}): say which with --dir", all.join(", "));
                Err(Failure { code: USAGE, message })
            }
        }
    }

    /// Reads `path` (below `/api/v1`).
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.value("GET", path, String::new())
    }

    /// Sends `body` to `path` and reads the answer.
    pub fn send<T: DeserializeOwned>(&self, method: &str, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body =
            serde_json::to_string(body).map_err(|error| Failure { code: FAILURE, message: error.to_string() })?;
        self.value(method, path, body)
    }

    /// Sends `body` to `path`, which answers without one.
    pub fn tell(&self, method: &str, path: &str, body: &impl Serialize) -> Result<(), Failure> {
        let body =
            serde_json::to_string(body).map_err(|error| Failure { code: FAILURE, message: error.to_string() })?;
        self.text(method, path, body).map(|_| ())
    }

    /// A call that answers without a body.
    pub fn call(&self, method: &str, path: &str) -> Result<(), Failure> {
        self.text(method, path, String::new()).map(|_| ())
    }

    fn value<T: DeserializeOwned>(&self, method: &str, path: &str, body: String) -> Result<T, Failure> {
        let text = self.text(method, path, body)?;
        let strange = |error| Failure {
            code: FAILURE,
            message: format!("the process answered something else than expected: {error}"),
        };
        serde_json::from_str(&text).map_err(strange)
    }

    fn text(&self, method: &str, path: &str, body: String) -> Result<String, Failure> {
        let (pid, url) = (self.access.pid, format!("{}/api/v1{path}", self.access.url));
        let failed = |error: ureq::Error| {
            let log = self.dir.join("braid.log");
            let message =
                format!("process {pid} does not answer at {}: {error}; see {}", self.access.url, log.display());
            Failure { code: FAILURE, message }
        };
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(&url)
            .header("authorization", format!("Bearer {}", self.access.token))
            .header("content-type", "application/json")
            .body(body)
            .map_err(|error| Failure { code: FAILURE, message: error.to_string() })?;
        let mut response = self.agent.run(request).map_err(failed)?;
        let status = response.status();
        let text = response.body_mut().read_to_string().map_err(failed)?;
        if status.is_success() {
            return Ok(text);
        }
        match serde_json::from_str::<ErrorBody>(&text) {
            Ok(error) => Err(error.into_error().into()),
            Err(_) => Err(Failure { code: FAILURE, message: format!("process {pid} answered {status}: {text}") }),
        }
    }
}

/// `text` as one segment of a path or one value of a query.
pub fn escape(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn escaping() {
        assert_eq!(super::escape("a-b._~9"), "a-b._~9");
        assert_eq!(super::escape("/mnt/ä b?"), "%2Fmnt%2F%C3%A4%20b%3F");
    }
}
